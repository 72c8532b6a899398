"""The cost of shrinking: the engine steps that our shrinker executes, against those of Hypothesis.

Both start from the same failing run: the first that Hypothesis generates from a seed with a mutant planted.  Both
accept a candidate if it fails with the same fingerprint.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec
from hypothesis import Phase

from swarden.harness.core.changes import Changes
from swarden.harness.core.driver import Driver, Failure
from swarden.harness.core.oplog import Header, OpLog
from swarden.harness.core.registry import OWN, target_of
from swarden.harness.core.replay import log_of, run_log
from swarden.harness.core.target import Target
from swarden.harness.search.search import search
from swarden.harness.search.shrink.shrink import ShrinkBudget, shrink
from swarden.harness.search.traffic.machine import Machine, RunListener
from swarden.harness.search.traffic.traffic import EngineTraffic

MUTANTS = ("B30", "B31", "B34")
SEED = 0
MAX_RUNS = 1000  # until the bug must have failed a run
BUDGET = ShrinkBudget(executions=100_000, cpu_seconds=600.0)


class Effort(NamedTuple):
    """The runs and steps that a shrinker executed, and the length of its result."""

    executions: int
    executed_steps: int
    ops: int
    engine_steps: int

    def __str__(self) -> str:
        return f"{self.executed_steps} steps in {self.executions} runs, to {self.ops} ops and {self.engine_steps} steps"


@dataclass(frozen=True, slots=True)
class Comparison:
    """Both shrinkers on one failing run of `ops` ops."""

    mutant: str
    ops: int
    ours: Effort
    hypothesis: Effort

    @property
    def ratio(self) -> float:
        return self.ours.executed_steps / self.hypothesis.executed_steps

    def __str__(self) -> str:
        return f"{self.mutant}, {self.ops} ops: {self.ratio:.3f} ({self.ours}; hypothesis {self.hypothesis})"


class FailureFound(Exception):
    """A run failed for the first time, or with the fingerprint of the first failure."""


@dataclass
class Listening(RunListener):
    """Observes the runs of Hypothesis: the first failing run, and the steps executed after it."""

    mutant: str
    target: Target
    is_over: bool = False
    first: OpLog | None = None
    executions: int = 0
    executed_steps: int = 0
    last_failing: Driver | None = field(default=None, repr=False)

    def on_op(self, driver: Driver) -> None:
        """Raise at the first failure and at each one like it: the run ends, and Hypothesis sees the failure."""
        if driver.failure is not None and (self.first is None or self._is_same(driver.failure)):
            raise FailureFound(driver.failure.fingerprint)

    def on_end(self, header: Header, driver: Driver) -> None:
        if self.first is not None:
            self.executions += 1
            self.executed_steps += driver.counts.engine_steps
        elif driver.failure is not None:
            self.first = log_of(msgspec.structs.replace(header, mutant=self.mutant), driver)
        if driver.failure is not None and self._is_same(driver.failure):
            self.last_failing = driver

    def effort(self) -> Effort:
        """The effort of Hypothesis; its last failing run is its smallest example."""
        assert self.last_failing is not None, f"{self.mutant}: no run failed after the first"
        return _effort(self.executions, self.executed_steps, self.last_failing)

    def _is_same(self, failure: Failure) -> bool:
        return self.first is not None and self.first.header.expected in failure.fingerprints


def compare(mutant: str, *, machine: type[Machine] = EngineTraffic, from_seed: int = SEED) -> Comparison:
    """Find a planted bug from a seed, and shrink its failing run with both shrinkers."""
    theirs = Listening(mutant, target_of(OWN))
    with Changes(mutant).planted(theirs.target), suppress(FailureFound):
        search(machine, theirs, from_seed=from_seed, max_runs=MAX_RUNS, phases=(Phase.generate, Phase.shrink))
    first = theirs.first
    assert first is not None, f"{mutant}: not found in {MAX_RUNS} runs from seed {from_seed}"
    return Comparison(mutant, len(first.ops), _shrunk_by_us(first), theirs.effort())


def figures(comparisons: Sequence[Comparison]) -> dict[str, Any]:
    return {
        "shrink_step_ratio": {one.mutant: round(one.ratio, 4) for one in comparisons},
        "shrinking": {
            one.mutant: {"ops": one.ops, "ours": one.ours._asdict(), "hypothesis": one.hypothesis._asdict()}
            for one in comparisons
        },
    }


def text(comparisons: Sequence[Comparison]) -> str:
    return "\n".join(["engine steps executed to shrink a run, over those of Hypothesis:", *map(str, comparisons)])


def _shrunk_by_us(log: OpLog) -> Effort:
    executed = []

    def still_fails(candidate: OpLog) -> Failure | None:
        driver = run_log(candidate)
        executed.append(driver.counts.engine_steps)
        failure = driver.failure
        return failure if failure and log.header.expected in failure.fingerprints else None

    small = shrink(log, still_fails, BUDGET)
    return _effort(len(executed), sum(executed), run_log(small.log))


def _effort(executions: int, executed_steps: int, result: Driver) -> Effort:
    return Effort(executions, executed_steps, len(result.ops), result.counts.engine_steps)
