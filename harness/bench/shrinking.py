"""The cost of shrinking: the engine steps that our shrinker executes, against those of Hypothesis.

Both start from the same failing run: the first that Hypothesis generates from a seed with a mutant planted.  Both
accept a candidate if it fails with the same fingerprint.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import msgspec
from hypothesis import Phase

from swarden.harness.bench.timing import Case
from swarden.harness.core.changes import Changes
from swarden.harness.core.driver import Driver, Failure
from swarden.harness.core.oplog import Header, OpLog
from swarden.harness.core.registry import OWN, target_of
from swarden.harness.core.replay import log_of, run_log
from swarden.harness.core.target import Target
from swarden.harness.search.search import search
from swarden.harness.search.shrink.shrink import ShrinkBudget, shrink
from swarden.harness.search.traffic.machine import RunListener
from swarden.harness.search.traffic.traffic import EngineTraffic

MUTANTS = ("B30", "B31", "B34")
MAX_RUNS = 1000  # until the bug must have failed a run
BUDGET = ShrinkBudget(executions=100_000, cpu_seconds=600.0)


class FailureFound(Exception):
    """A run failed for the first time, or with the fingerprint of the first failure."""


@dataclass
class Listening(RunListener):
    """Observes the runs of Hypothesis: the first failing run, the steps of each run after it, and the last like it."""

    mutant: str
    target: Target
    is_over: bool = False
    first: OpLog | None = None
    executed: list[int] = field(default_factory=list)
    last_failing: Driver | None = None

    def on_op(self, driver: Driver) -> None:
        """Raise at the first failure and at each one like it: the run ends, and Hypothesis sees the failure."""
        if driver.failure is not None and (self.first is None or _failure_like(self.first, driver)):
            raise FailureFound(driver.failure.fingerprint)

    def on_end(self, header: Header, driver: Driver) -> None:
        if self.first is not None:
            self.executed.append(driver.counts.engine_steps)
        elif driver.failure is not None:
            self.first = log_of(msgspec.structs.replace(header, mutant=self.mutant), driver)
        if self.first is not None and _failure_like(self.first, driver):
            self.last_failing = driver


def compare(mutant: str, *, from_seed: int = 0) -> Case:
    """Find a planted bug from a seed, and shrink its failing run with both shrinkers."""
    theirs = Listening(mutant, target_of(OWN))
    with Changes(mutant).planted(theirs.target), suppress(FailureFound):
        search(EngineTraffic, theirs, from_seed=from_seed, max_runs=MAX_RUNS, phases=(Phase.generate, Phase.shrink))
    first, smallest = theirs.first, theirs.last_failing
    assert first is not None, f"{mutant}: not found in {MAX_RUNS} runs from seed {from_seed}"
    assert smallest is not None, f"{mutant}: no run failed after the first"
    executed = []

    def still_fails(candidate: OpLog) -> Failure | None:
        driver = run_log(candidate)
        executed.append(driver.counts.engine_steps)
        return _failure_like(first, driver)

    small = shrink(first, still_fails, BUDGET)
    ours, hypothesis = _effort(executed, run_log(small.log)), _effort(theirs.executed, smallest)
    return Case(
        f"engine steps executed to shrink {mutant}, swarden / Hypothesis",
        {
            "ratio": round(ours["executed steps"] / hypothesis["executed steps"], 4),
            "swarden": ours,
            "hypothesis": hypothesis,
            "ops before": len(first.ops),
        },
    )


def _failure_like(log: OpLog, driver: Driver) -> Failure | None:
    failure = driver.failure
    return failure if failure and log.header.expected in failure.fingerprints else None


def _effort(executed: Sequence[int], result: Driver) -> dict[str, int]:
    """The runs and steps that a shrinker executed, and the length of its result."""
    return {
        "executed steps": sum(executed),
        "runs": len(executed),
        "ops": len(result.ops),
        "engine steps": result.counts.engine_steps,
    }
