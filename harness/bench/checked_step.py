"""The cost of a checked engine step, relative to a step of an empty Hypothesis machine."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Any

from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

from swarden.engine_under_test.config import EngineConfig
from swarden.harness.bench.timing import Measured, paired, timed
from swarden.harness.core.driver import Driver
from swarden.harness.core.oplog import Header
from swarden.harness.core.ops import Op, Recipe, Step, Submit
from swarden.harness.core.registry import OWN
from swarden.harness.core.replay import driver_of
from swarden.invariants.view import Snapshot

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
    max_running_requests=6,
    max_context_len=256,
    chunk_len=64,
)
HEADER = Header(engine=OWN, configs=[CONFIG.to_mapping()])


@dataclass(frozen=True)
class Workload:
    """The pinned workload as ops, and what is checked per measured step and the minimum activity, as figures."""

    warm: Sequence[Op]
    measured: Sequence[Op]
    figures: dict[str, Any]


def measure(*, pairs: int) -> Iterator[Measured]:
    """Measure the pairs in this process, each with the same ops."""
    workload = pinned_workload()
    measured = paired(partial(_checked_step_us, workload), _empty_step_us, pairs=pairs)
    checked_us, empty_us = measured.sides
    least = workload.figures["workload"]
    yield Measured(
        f"checked engine step / step of an empty Hypothesis machine: {measured.ratio:.2f} "
        f"({checked_us:.0f} us / {empty_us:.0f} us of CPU; pairs "
        f"{', '.join(f'{ratio:.2f}' for ratio in measured.ratios)})\n"
        f"checked per step: {workload.figures['invariants']} invariants over {workload.figures['units']} units\n"
        f"workload at its least: {least['least_running']} running, pools used "
        f"{', '.join(f'{name} {share:.0%}' for name, share in least['least_used'].items())}, "
        f"{least['least_nodes']} tree nodes; {least['noop_share']:.1%} no-ops",
        {
            "checked_step_ratio": measured.ratio,
            "checked_step_ratios": measured.ratios,
            "checked_step_us": checked_us,
            "empty_step_us": empty_us,
        }
        | workload.figures,
    )


def pinned_workload() -> Workload:
    """Steps one by one, with submissions while at most `RUNNING` requests are alive, for all measured steps."""
    driver, submissions = driver_of(HEADER), map(submission, count())

    def applied() -> Op:
        op = Step() if len(driver.snapshot().requests or ()) > RUNNING else next(submissions)
        apply(driver, [op])
        return op

    warm: list[Op] = []
    while driver.counts.engine_steps < WARM_STEPS:
        warm.append(applied())
    before, measured, snapshots = _num_evaluated(driver), list[Op](), list[Snapshot]()
    while len(snapshots) < MEASURED_STEPS:
        measured.append(applied())
        if isinstance(measured[-1], Step):
            snapshots.append(driver.snapshot())
    pools = snapshots[0].pools
    used = {
        pool.name: min(1 - len(snapshot.pool(pool.name).free) / pool.capacity for snapshot in snapshots)
        for pool in pools
        if pool.unit == "page"
    }
    least = {
        "least_running": min(sum(one.place == "running" for one in snapshot.requests or ()) for snapshot in snapshots),
        "least_used": {name: round(share, 3) for name, share in used.items()},
        "least_nodes": min(len(snapshot.nodes or ()) for snapshot in snapshots),
        "noop_share": round(driver.counts.noops.total() / driver.counts.ops.total(), 4),
    }
    invariants = round((_num_evaluated(driver) - before) / MEASURED_STEPS)
    units = sum(pool.capacity for pool in pools)
    return Workload(warm, measured, {"invariants": invariants, "units": units, "workload": least})


def submission(number: int) -> Op:
    """A request; prompts share a prefix, branch at a few depths and repeat later."""
    path = (0, number % 2, number % 3, number % 5, number % 7)
    output_len = OUTPUT_LENS[number % len(OUTPUT_LENS)]
    return Submit(recipe=Recipe(path=path, stretch=4, cut=number % 3), max_new_tokens=output_len)


def apply(driver: Driver, ops: Iterable[Op]) -> None:
    """Apply ops that must not fail."""
    for op in ops:
        driver.apply(op)
    assert driver.failure is None, f"the workload fails: {driver.failure.fingerprint}"


def _num_evaluated(driver: Driver) -> int:
    return sum(counts.evaluated for _, counts in driver.counts.tally.items())


def _checked_step_us(workload: Workload) -> float:
    driver = driver_of(HEADER)
    apply(driver, workload.warm)
    seconds, _ = timed(lambda: apply(driver, workload.measured))
    return seconds / MEASURED_STEPS * 1e6


def _empty_step_us() -> float:
    """A step of a machine whose rules draw an integer and do nothing: the cost of the generation."""
    steps = 0

    def nothing(_machine: RuleBasedStateMachine, _value: int) -> None:
        nonlocal steps
        steps += 1

    rules = {f"rule_{number}": rule(_value=st.integers())(nothing) for number in range(EMPTY_RULES)}
    machine = type("EmptyMachine", (RuleBasedStateMachine,), rules)
    quiet = settings(
        max_examples=EMPTY_RUNS,
        stateful_step_count=EMPTY_STEPS_PER_RUN,
        database=None,
        deadline=None,
        phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )
    seconds, _ = timed(lambda: run_state_machine_as_test(seed(0)(machine), settings=quiet))
    return seconds / steps * 1e6
