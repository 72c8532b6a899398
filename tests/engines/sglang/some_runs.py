"""Random runs of one release, in the process that imports it."""

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from harness.core.driver import Driver
from harness.core.oplog import Header, OpLog
from harness.core.registry import target_of
from harness.core.replay import failure_like, log_of, replay
from harness.core.target import Target
from harness.search.machine import Listener
from harness.search.search import search
from harness.search.shrink import Budget, shrink
from harness.search.traffic import EngineTraffic

RUNS_PER_SEARCH = 100


@dataclass
class Recorder(Listener):
    """Keeps the log of each run; the first failure of `sought` ends the search."""

    target: Target
    sought: str | None = None
    logs: list[OpLog] = field(default_factory=list)
    evaluated: Counter[str] = field(default_factory=Counter)
    found: tuple[str, OpLog] | None = None

    @property
    def is_over(self) -> bool:
        return self.found is not None

    def on_op(self, driver: Driver) -> None:
        """Continue the run."""

    def on_end(self, header: Header, driver: Driver) -> None:
        log = log_of(header, driver)
        self.logs.append(log)
        self.evaluated.update({name: judged.evaluated for name, judged in driver.counts.tally.items()})
        for fingerprint in driver.failure.fingerprints if driver.failure is not None else ():
            if fingerprint.split("/")[0] == self.sought:
                self.found = fingerprint, log


@dataclass(frozen=True)
class RandomRuns:
    """The number of runs, how often each law was evaluated, the laws that failed, and where replays differ."""

    runs: int
    evaluated: Counter[str]
    failed: set[str]
    diverged: list[str]


def random_runs(version: str, runs: int) -> RandomRuns:
    """Make random runs and replay each."""
    recorder = Recorder(target_of(f"sglang=={version}"))
    search(EngineTraffic, recorder, from_seed=1, max_runs=runs)
    failed = {log.header.expected.split("/")[0] for log in recorder.logs if log.header.expected is not None}
    diverged = [place for log in recorder.logs if (place := replay(log).diverged) is not None]
    return RandomRuns(len(recorder.logs), recorder.evaluated, failed, diverged)


def shrunk_failure(version: str, law: str, searches: int, path: Path) -> bool:
    """Search until this law fails, shrink the run and save its log with digests; false if it does not fail."""
    recorder = Recorder(target_of(f"sglang=={version}"), law)
    for seed in range(searches):
        if not recorder.is_over:
            search(EngineTraffic, recorder, from_seed=seed, max_runs=RUNS_PER_SEARCH)
    if recorder.found is None:
        return False
    fingerprint, log = recorder.found
    small = shrink(log, lambda candidate: failure_like(candidate, fingerprint), Budget(cpu_seconds=60)).log
    replay(small).again.save(path)
    return True
