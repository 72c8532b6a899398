"""Nights whose jobs are answered by a table instead of worker processes."""

from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from swarden.harness.commands.nightly import PHASES
from swarden.harness.core.oplog import Header, OpLog
from swarden.harness.core.ops import Step, Submit
from swarden.harness.core.process import ProcessLimits
from swarden.harness.core.registry import OWN
from swarden.harness.core.replay import Replays, Verdict
from swarden.harness.nightly.archive import Archive, Night
from swarden.harness.nightly.events import Event
from swarden.harness.nightly.night import Coordinator, NightPhase, Order, begin, resumed
from swarden.harness.nightly.night_records import Canary
from swarden.harness.nightly.pool import JobPool
from swarden.harness.nightly.shards import FRESH, ShardResult
from swarden.harness.report.story import StoryLine, StoryPart
from swarden.harness.search.result import Finding, Result, Tallies

LOG = OpLog(Header(engine=OWN, configs=[{}]), [Submit(), Step()])
LEAK, DOUBLE_FREE = "unit_has_one_owner/swa page/none", "units_are_freed_once/full page/free"
FAILED, FIXED = (Replays(Verdict.FAILED, (LEAK,), 3, 3), Replays(Verdict.FIXED, (), 0, 3))
CANARY = Canary(engine=OWN, mutant="B46", law="requests_are_in_one_queue", runs=1)
ORDER = Order([OWN], "swarden nightly", runs=3 * 4 * 8, profile="smoke", seed=None)  # three shards


def found(*names: str, died: str = "") -> dict[str, Finding]:
    return {name: Finding(name, LOG.as_regression(name), 0.5, OWN, died=died) for name in names}


def shard_result(*names: str, died: str = "") -> ShardResult:
    """The result of a shard with four runs, one of which fails in each of these ways."""
    tallies = Tallies(runs=4, steps=40, failed_runs=len(names), failures=Counter(names))
    result = Result(tallies, found(*names, died=died), seconds=1.0, cpu_seconds=0.5)
    return ShardResult(result, "a-node")


def leaking(*_: Any) -> ShardResult:
    return shard_result(LEAK)


def settled(finding: Finding, failures: int = FRESH, why: str = "") -> Finding:
    story = [StoryLine(StoryPart.EVIDENCE, line) for line in ("a story", "replay: swarden replay elsewhere")]
    verdict = Verdict.FAILED if failures == FRESH else Verdict.FLAKY
    return finding.changed(story=story).repeated(verdict, failures, FRESH, why)


class Lost(Exception):
    """A node was lost."""


@dataclass
class Table(Executor):
    """An Executor that answers each job by the name of its function, and notes the calls."""

    answers: dict[str, Callable[..., Any]] = field(default_factory=dict)
    calls: list[tuple[str, Any]] = field(default_factory=list)

    def submit(self, function: Callable[..., Any], /, *arguments: Any, **_: Any) -> Future[Any]:
        self.calls.append((function.__name__, arguments[0]))
        future: Future[Any] = Future()
        try:
            future.set_result(self.answers[function.__name__](*arguments))
        except Exception as error:  # an Executor keeps each error of a job
            future.set_exception(error)
        return future

    def count(self, function: str) -> int:
        return sum(name == function for name, _ in self.calls)


def table(
    run_shard: Callable[..., Any] = lambda *_: shard_result(),
    replay_log: Replays = FIXED,
    settle: Callable[..., Any] = lambda finding, *_: settled(finding),
    find_canary: Canary = CANARY,
) -> Table:
    """A table with these answers; by default everything is healthy."""
    return Table(
        {
            "run_shard": run_shard,
            "replay_logs": lambda logs, *_: (logs[0][1], replay_log),
            "settle": lambda *arguments: [settle(*arguments)],
            "find_canary": lambda *_: find_canary,
        }
    )


def night_of(
    root: Path,
    answers: Table,
    of: Order | str = ORDER,
    *,
    events: list[Event] | None = None,
    phases: Sequence[NightPhase] = PHASES,
) -> Night:
    """Make a whole night in the archive, or continue the one with the name `of`."""
    archive = Archive(root)
    night = resumed(archive.nights_folder / of)[1] if isinstance(of, str) else begin(archive, of)
    emit = events.append if events is not None else lambda _: None
    for _ in Coordinator(archive, night, JobPool(answers, 1, (Lost,)), ProcessLimits(60.0), emit).run(phases):
        pass
    return night


def statuses(night: Night) -> dict[str, str]:
    return {finding.fingerprint: finding.sighting.status.value for finding in night.findings}
