"""Random runs of one release, in the process that imports it."""

import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

from swarden.harness.core.driver import Driver
from swarden.harness.core.oplog import Header, OpLog
from swarden.harness.core.ops import Op, Step
from swarden.harness.core.process import Interpreter, Process
from swarden.harness.core.registry import target_of
from swarden.harness.core.replay import failure_like, log_of, replay
from swarden.harness.core.system import EngineSystem
from swarden.harness.core.target import Target
from swarden.harness.search.search import search
from swarden.harness.search.shrink.shrink import ShrinkBudget, shrink
from swarden.harness.search.traffic.machine import RunListener
from swarden.harness.search.traffic.traffic import EngineTraffic

RUNS_PER_SEARCH = 100
FOUND = 3  # failures of one law: one of them may be hard to shrink


@dataclass
class Recorder(RunListener):
    """Keeps the log of each run; some failures of `sought` end the search."""

    target: Target
    sought: str | None = None
    logs: list[OpLog] = field(default_factory=list)
    evaluated: Counter[str] = field(default_factory=Counter)
    found: list[tuple[str, OpLog]] = field(default_factory=list)

    @property
    def is_over(self) -> bool:
        return len(self.found) >= FOUND

    def on_op(self, driver: Driver) -> None:
        """Continue the run."""

    def on_end(self, header: Header, driver: Driver) -> None:
        log = log_of(header, driver)
        self.logs.append(log)
        self.evaluated.update({name: judged.evaluated for name, judged in driver.counts.tally.items()})
        for fingerprint in driver.failure.fingerprints if driver.failure is not None else ():
            if fingerprint.split("/")[0] == self.sought:
                self.found.append((fingerprint, log))


@dataclass(frozen=True)
class RandomRuns:
    """The number of runs, how often each law was evaluated, the failures, and where replays differ.

    A failure is a fingerprint with the configuration of its run.
    """

    runs: int
    evaluated: Counter[str]
    failures: list[tuple[str, dict[str, Any]]]
    diverged: list[str]

    @property
    def failed(self) -> set[str]:
        """The laws that failed."""
        return {fingerprint.split("/")[0] for fingerprint, _ in self.failures}


def digests_of_runs(engine: str, runs: int, calls: int) -> list[Sequence[str] | None]:
    """Make random runs of so many calls of rules."""
    recorder = Recorder(target_of(engine))
    search(EngineTraffic, recorder, from_seed=1, max_runs=runs, calls=calls)
    return [log.digests for log in recorder.logs]


def random_runs(engine: str, runs: int) -> RandomRuns:
    """Make random runs and replay each."""
    recorder = Recorder(target_of(engine))
    search(EngineTraffic, recorder, from_seed=1, max_runs=runs)
    headers = [log.header for log in recorder.logs]
    failures = [(one.expected, dict(one.configs[0])) for one in headers if one.expected is not None]
    diverged = [place for log in recorder.logs if (place := replay(log).diverged) is not None]
    return RandomRuns(len(recorder.logs), recorder.evaluated, failures, diverged)


def is_same_under_hash_seeds(function: Callable[..., Any], *arguments: Any) -> bool:
    """Whether the results of a function in two processes are equal, whose sets of texts differ in their order."""
    seeded = [Interpreter(sys.executable, sys.path, {"PYTHONHASHSEED": seed}) for seed in "12"]
    with Process(interpreter=seeded[0]) as first, Process(interpreter=seeded[1]) as second:
        return bool(first.call(function, *arguments) == second.call(function, *arguments))


def shrunk_failure(engine: str, law: str, searches: int, path: Path, most_ops: int) -> bool:
    """Search for failures of this law, and save the log of one that shrinks to `most_ops`, with digests.

    False if there is none.
    """
    recorder = Recorder(target_of(engine), law)
    for seed in range(searches):
        if not recorder.is_over:
            search(EngineTraffic, recorder, from_seed=seed, max_runs=RUNS_PER_SEARCH)
    for fingerprint, log in sorted(recorder.found, key=lambda one: len(one[1].ops)):
        small = shrink(log, partial(failure_like, fingerprint=fingerprint), ShrinkBudget(cpu_seconds=20)).log
        if len(small.ops) <= most_ops:
            replay(small).again.save(path)
            return True
    return False


def served(engine: str, settings: dict[str, Any], ops: Sequence[Op], steps: int) -> SimpleNamespace:
    """What a release does with these ops, and then in so many steps: outputs, ends, events, places and counts."""
    target = target_of(engine)
    target.prepare_process()
    system = EngineSystem(target.build(target.decode(settings)))
    result = SimpleNamespace(outputs={}, ends={}, events=[], places=set(), in_flight=[])
    for op in [*ops, *[Step()] * steps]:
        system.do(op)
        for answer in system.streamed if isinstance(op, Step) else ():
            result.outputs.setdefault(answer.request_id, []).extend(answer.token_ids)
            result.ends |= {answer.request_id: answer.finish_reason} if answer.finish_reason else {}
        snapshot = system.capture()
        result.places |= {request.place for request in snapshot.requests or ()}
        result.in_flight.append(len(snapshot.launches or ()))
        result.events += system.take_events()
    result.num_live = len(system.capture().requests or ())
    return result


def events_of(result: SimpleNamespace, kind: type[NamedTuple]) -> list[Any]:
    return [event for event in result.events if isinstance(event, kind)]
