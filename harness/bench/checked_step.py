"""The cost of a checked engine step, relative to a step of an empty Hypothesis machine."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

from swarden.engine_under_test.config import EngineConfig
from swarden.harness.core.driver import Driver
from swarden.harness.core.oplog import Header
from swarden.harness.core.ops import Op, Recipe, Step, Submit
from swarden.harness.core.registry import OWN
from swarden.harness.core.replay import driver_of
from swarden.invariants.view import Snapshot

PAIRS = 5
WARM_STEPS = 150
MEASURED_STEPS = 600
EMPTY_RULES = 10
EMPTY_RUNS = 25
EMPTY_STEPS_PER_RUN = 200
RUNNING = 6
OUTPUT_LENS = (26, 22, 30)
CONFIG = EngineConfig(
    page_size=4,
    full_pages=64,
    swa_pages=24,
    sliding_window=5,
    max_running_requests=RUNNING,
    max_context_len=256,
    chunk_len=64,
)
HEADER = Header(engine=OWN, configs=[CONFIG.to_mapping()])


class StepCount:
    """The number of executed rules."""

    def __init__(self) -> None:
        self.steps = 0

    def empty_rule(self) -> Callable[[RuleBasedStateMachine, int], None]:
        """A rule that draws an integer and does nothing."""

        @rule(_value=st.integers())
        def nothing(_machine: RuleBasedStateMachine, _value: int) -> None:
            self.steps += 1

        return nothing

    def empty_machine(self) -> type[RuleBasedStateMachine]:
        """A machine with empty rules only; it measures the cost of the generation."""
        rules = {f"rule_{number}": self.empty_rule() for number in range(EMPTY_RULES)}
        return type("EmptyMachine", (RuleBasedStateMachine,), rules)


@dataclass(frozen=True)
class Workload:
    """The pinned workload as ops, and its minimum activity over the measured steps."""

    warm: Sequence[Op]
    measured: Sequence[Op]
    least_running: int
    least_used: dict[str, float]
    least_nodes: int
    noop_share: float


@dataclass(frozen=True)
class CheckedStepCost:
    """Microseconds of CPU per step, and their ratio: the median over consecutive pairs.

    `invariants` are evaluated per step; `units` are captured, of all pools.
    """

    ratio: float
    ratios: Sequence[float]
    checked_us: float
    empty_us: float
    invariants: int
    units: int
    workload: Workload


def measure(pairs: int = PAIRS) -> CheckedStepCost:
    """Run the pairs in this process, each with the same ops."""
    workload = pinned_workload()
    invariants, units = _checked_per_step(workload)
    measured = [(_checked_step_us(workload), _empty_step_us(pair)) for pair in range(pairs)]
    ratios = [checked / empty for checked, empty in measured]
    return CheckedStepCost(
        median(ratios),
        ratios,
        median(checked for checked, _ in measured),
        median(empty for _, empty in measured),
        invariants,
        units,
        workload,
    )


def pinned_workload() -> Workload:
    """Steps one by one, with submissions while at most `RUNNING` requests are alive, for all measured steps."""
    driver = driver_of(HEADER)
    warm: list[Op] = []
    measured: list[Op] = []
    snapshots: list[Snapshot] = []
    submitted = 0
    while len(snapshots) < MEASURED_STEPS:
        phase = warm if driver.counts.engine_steps < WARM_STEPS else measured
        snapshot = driver.snapshot()
        alive = snapshot.requests or ()
        if len(alive) <= RUNNING:
            op: Op = _submission(submitted)
            submitted += 1
        else:
            op = Step()
        phase.append(op)
        driver.apply(op)
        assert driver.failure is None, f"the pinned workload fails: {driver.failure}"
        if phase is measured and isinstance(op, Step):
            snapshots.append(driver.snapshot())
    pages = [pool.name for pool in snapshots[0].pools if pool.unit == "page"]
    return Workload(
        warm,
        measured,
        min(_num_running(snapshot) for snapshot in snapshots),
        {name: min(_used_share(snapshot, name) for snapshot in snapshots) for name in pages},
        min(len(snapshot.nodes or ()) for snapshot in snapshots),
        sum(driver.counts.noops.values()) / sum(driver.counts.ops.values()),
    )


def _submission(number: int) -> Op:
    """A request; prompts share a prefix, branch at a few depths and repeat later."""
    path = (0, number % 2, number % 3, number % 5, number % 7)
    return Submit(
        recipe=Recipe(path=path, stretch=4, cut=number % 3), max_new_tokens=OUTPUT_LENS[number % len(OUTPUT_LENS)]
    )


def _checked_step_us(workload: Workload) -> float:
    driver = driver_of(HEADER)
    _apply(driver, workload.warm)
    steps = driver.counts.engine_steps
    began = time.process_time()
    _apply(driver, workload.measured)
    spent = time.process_time() - began
    return spent / (driver.counts.engine_steps - steps) * 1e6


def _apply(driver: Driver, ops: Sequence[Op]) -> None:
    for op in ops:
        driver.apply(op)
    assert driver.failure is None, f"the pinned workload fails: {driver.failure}"


def _empty_step_us(pair: int) -> float:
    count = StepCount()
    quiet = settings(
        max_examples=EMPTY_RUNS,
        stateful_step_count=EMPTY_STEPS_PER_RUN,
        database=None,
        deadline=None,
        phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )
    began = time.process_time()
    run_state_machine_as_test(seed(pair)(count.empty_machine()), settings=quiet)
    return (time.process_time() - began) / count.steps * 1e6


def _checked_per_step(workload: Workload) -> tuple[int, int]:
    """The numbers of evaluated invariants and of captured units, per measured step."""
    driver = driver_of(HEADER)
    _apply(driver, workload.warm)
    evaluated = _evaluated(driver)
    steps = driver.counts.engine_steps
    _apply(driver, workload.measured)
    checked = _evaluated(driver) - evaluated
    units = sum(pool.capacity for pool in driver.snapshot().pools)
    return round(checked / (driver.counts.engine_steps - steps)), units


def _evaluated(driver: Driver) -> int:
    return sum(counts.evaluated for _, counts in driver.counts.tally.items())


def _num_running(snapshot: Snapshot) -> int:
    return sum(request.place == "running" for request in snapshot.requests or ())


def _used_share(snapshot: Snapshot, name: str) -> float:
    pool = snapshot.pool(name)
    return 1 - len(pool.free) / pool.capacity
