"""The driver: every op is applied, captured and checked, until one fails."""

import pytest

from engine_under_test.config import EngineConfig
from engine_under_test.errors import AccountingError
from harness.core.driver import STUCK, Checking, Driver
from harness.core.ops import Abort, Drain, Flush, Recipe, Step, Submit
from harness.core.system import EngineSystem
from harness.engines.own.adapter import SwardenEngine
from harness.engines.own.mutants.catalog import BY_ID
from harness.engines.own.mutants.checker import CHECK_KNOWS_NO_WINDOWS
from invariants.view import Snapshot
from tests.harness.driving import own_driver

SMALL = EngineConfig(page_size=4, full_pages=32, swa_pages=8, sliding_window=8, max_running_requests=4)
REQUEST = Submit(recipe=Recipe(path=(0, 1, 2)), max_new_tokens=6)


class BrokenSystem(EngineSystem):
    """An engine that raises in its third step."""

    steps = 0

    def do(self, op):
        if isinstance(op, Step):
            self.steps += 1
            if self.steps == 3:
                raise AccountingError("page 7: freed twice")
        return super().do(op)


class EndlessSystem(EngineSystem):
    """An engine whose work never ends."""

    @property
    def has_work(self):
        return True


def test_an_error_is_of_the_engine_that_raised_and_its_last_events_are_in_the_history():
    """Whichever op it happens in; a drain serves both engines in turns."""
    systems = [EngineSystem(SwardenEngine(SMALL)), BrokenSystem(SwardenEngine(SMALL))]
    driver = Driver(systems)

    for op in (REQUEST, Submit(engine=1, max_new_tokens=6), Drain()):
        driver.apply(op)

    assert driver.failure is not None
    assert driver.failure.engine == 1
    assert (driver.failure.history[-1].system, driver.failure.history[-1].step) == (1, 3)


def test_every_step_of_an_op_is_judged_by_itself():
    """A step op of five makes five transitions, each with its own snapshot."""
    driver = own_driver("engine", [SMALL])

    driver.apply(REQUEST)
    driver.apply(Step(count=5))

    assert driver.failure is None
    assert driver.counts.engine_steps == 5
    assert driver.counts.tally["unit_has_one_owner"].evaluated == 6


def test_what_finds_nothing_to_do_is_counted_as_a_no_op():
    """Abort and step of an empty engine are no-ops; a flush is not."""
    driver = own_driver("engine", [SMALL])

    for op in (Abort(), Step(), Flush()):
        driver.apply(op)

    assert dict(driver.counts.ops) == {"abort": 1, "step": 1, "flush": 1}
    assert +driver.counts.noops == {"abort": 1, "step": 1}


def test_an_error_of_the_engine_is_a_failure_with_a_fingerprint_of_its_own():
    """The run ends, names the error and where it came from, and passes further ops over."""
    driver = Driver([BrokenSystem(SwardenEngine(SMALL))])

    for op in (REQUEST, Step(count=2), Step(), Step()):
        driver.apply(op)

    assert driver.failure is not None
    assert driver.failure.fingerprint == "AccountingError/tests.harness.core.test_driver.BrokenSystem.do"
    assert driver.failure.op_index == 2
    assert len(driver.ops) == 3


def test_a_drain_that_does_not_end_within_its_bound_is_stuck():
    """What never finishes is named as stuck, not waited for."""
    driver = Driver([EndlessSystem(SwardenEngine(SMALL))])

    driver.apply(Drain())

    assert driver.failure is not None
    assert driver.failure.fingerprint == STUCK


def test_a_drain_finishes_everything_and_leaves_every_pool_free():
    """Requests end, the cache is flushed, and nothing is held by anybody."""
    driver = own_driver("engine", [SMALL])

    for op in (REQUEST, Step(), REQUEST, Drain()):
        driver.apply(op)

    assert driver.failure is None
    assert [len(pool.free) == pool.capacity for pool in driver.snapshot().pools] == [True] * 3


def test_with_a_cadence_only_some_steps_are_judged():
    """Every third step is captured and checked, the others only happen."""
    driver = Driver([EngineSystem(SwardenEngine(SMALL))], checking=Checking(every=3))

    driver.apply(REQUEST)
    driver.apply(Step(count=7))

    assert driver.counts.engine_steps == 7
    assert driver.counts.tally["unit_has_one_owner"].evaluated == 2


def test_the_same_ops_give_the_same_digests():
    """A second run of the same ops passes through the same states."""
    first, second = own_driver("engine", [SMALL]), own_driver("engine", [SMALL])

    for driver in (first, second):
        for op in (REQUEST, Step(count=3), REQUEST, Step(count=3), Drain()):
            driver.apply(op)

    assert first.digests == second.digests
    assert len(set(first.digests)) == len(first.digests)


def test_two_engines_of_one_log_do_not_disturb_each_other():
    """An op goes to the engine that it names; the other one stays as it was."""
    driver = own_driver("engine", [SMALL, SMALL])
    before: Snapshot = driver.snapshot(0)

    driver.apply(Submit(engine=1, max_new_tokens=2))
    driver.apply(Step(engine=1, count=2))

    assert driver.snapshot(0) is before
    assert driver.snapshot(1).step == 2


@pytest.mark.parametrize("mutant", ["B18", "B46"])
def test_a_planted_bug_ends_the_run_with_the_names_of_the_invariants(mutant):
    """The failure holds the violations, the transition and the whole history."""
    with BY_ID[mutant].planted():
        driver = own_driver(
            "engine", [EngineConfig(page_size=2, full_pages=64, swa_pages=6, sliding_window=2, chunk_len=4)]
        )
        for op in (Submit(recipe=Recipe(path=(0, 0, 0)), max_new_tokens=4), Submit(max_new_tokens=2), Drain()):
            driver.apply(op)

    assert driver.failure is not None
    assert {violation.law for violation in driver.failure.violations} & set(BY_ID[mutant].caught_by)
    assert driver.failure.transition is not None
    assert driver.failure.history


def test_error_in_an_invariant_is_no_finding():
    """It is a fault of swarden, and is not blamed on the engine."""
    config = EngineConfig(page_size=4, full_pages=16, swa_pages=12, sliding_window=6)
    driver = own_driver("engine", [config])

    driver.apply(REQUEST)

    with CHECK_KNOWS_NO_WINDOWS.planted(), pytest.raises(NotImplementedError):
        driver.apply(Step(count=8))

    assert driver.failure is None
