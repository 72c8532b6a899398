"""The driver: each op is applied and its transitions are checked, until one fails."""

import pytest

from swarden.engine_under_test.config import EngineConfig
from swarden.engine_under_test.errors import AccountingError
from swarden.harness.core.driver import STUCK, Checking, Driver
from swarden.harness.core.errors import RunTooLarge
from swarden.harness.core.ops import Abort, Drain, Flush, Inject, Recipe, Step, Submit
from swarden.harness.core.system import EngineSystem
from swarden.harness.engines.own.adapter import SwardenEngine
from swarden.harness.engines.own.mutants.catalog import BY_ID
from swarden.harness.engines.own.mutants.checker import CHECK_KNOWS_NO_WINDOWS
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
    """An engine that always has work, and few steps to drain."""

    drain_bound = 2

    @property
    def has_work(self):
        return True


def test_error_names_the_engine_that_raised_and_its_last_events_are_in_the_history():
    """The error is raised in a drain, in which both engines make steps in turn."""
    systems = [EngineSystem(SwardenEngine(SMALL)), BrokenSystem(SwardenEngine(SMALL))]
    driver = Driver(systems)

    for op in (REQUEST, Submit(engine=1, max_new_tokens=6), Drain()):
        driver.apply(op)

    assert driver.failure is not None
    assert driver.failure.engine == 1
    assert (driver.failure.history[-1].system, driver.failure.history[-1].step) == (1, 3)


def test_op_without_effect_is_counted_as_a_noop():
    """Abort and step of an empty engine are no-ops; a flush is not."""
    driver = own_driver("engine", [SMALL])

    for op in (Abort(), Step(), Flush()):
        driver.apply(op)

    assert dict(driver.counts.ops) == {"abort": 1, "step": 1, "flush": 1}
    assert +driver.counts.noops == {"abort": 1, "step": 1}


def test_engine_error_is_a_failure_whose_fingerprint_names_the_error():
    """The fingerprint has the error and the function; further ops are skipped."""
    driver = Driver([BrokenSystem(SwardenEngine(SMALL))])

    for op in (REQUEST, Step(count=2), Step(), Step()):
        driver.apply(op)

    assert driver.failure is not None
    assert driver.failure.fingerprint == "AccountingError/tests.harness.core.test_driver.BrokenSystem.do"
    assert driver.failure.op_index == 2
    assert len(driver.ops) == 3


def test_drain_that_exceeds_its_bound_is_stuck_in_the_engine_that_has_requests():
    driver = Driver([EndlessSystem(SwardenEngine(SMALL)) for _ in range(2)])

    for op in (Submit(engine=1, max_new_tokens=6), Drain()):
        driver.apply(op)

    assert driver.failure is not None
    assert (driver.failure.fingerprint, driver.failure.engine) == (STUCK, 1)


def test_run_with_more_steps_than_the_limit_is_refused_with_the_number_of_the_op():
    driver = Driver([EngineSystem(SwardenEngine(SMALL))], checking=Checking(max_steps=5))
    driver.apply(Submit(max_new_tokens=100))
    driver.apply(Step(count=4))

    with pytest.raises(RunTooLarge, match=r"^op 3: the run has 5 engine steps before it ends$"):
        driver.apply(Drain())

    assert driver.ops == [Submit(max_new_tokens=100), Step(count=4)]


def test_with_an_interval_only_every_third_step_is_checked():
    driver = Driver([EngineSystem(SwardenEngine(SMALL))], checking=Checking(every=3))

    driver.apply(REQUEST)
    driver.apply(Step(count=7))

    assert driver.counts.engine_steps == 7
    assert driver.counts.tally["unit_has_one_owner"].evaluated == 2


@pytest.mark.parametrize("mutant", ["B18", "B46"])
def test_failure_of_a_planted_bug_has_its_violations_and_history(mutant):
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
    config = EngineConfig(page_size=4, full_pages=16, swa_pages=12, sliding_window=6)
    driver = own_driver("engine", [config])

    driver.apply(REQUEST)

    with CHECK_KNOWS_NO_WINDOWS.planted(), pytest.raises(NotImplementedError):
        driver.apply(Step(count=8))

    assert driver.failure is None


def test_fault_of_a_rank_that_no_engine_has_is_refused():
    driver = Driver([EndlessSystem(SwardenEngine(SMALL)) for _ in range(2)], checking=Checking(engines=1))

    with pytest.raises(ValueError, match="no rank 2: an engine has 2 here"):
        driver.apply(Inject(rank=2))

    assert driver.ops == []
