"""A perturbation that the level content does not notice, or blames on something else, fails its run, which replays."""

from pathlib import Path

import pytest

from swarden.harness.bench.perturbation import log_with
from swarden.harness.core.driver import Driver, Failure
from swarden.harness.core.mutant import Hunk, Mutant
from swarden.harness.core.oplog import OpLog, OpLogError
from swarden.harness.core.ops import Drain, Inject
from swarden.harness.core.replay import Verdict, failure_like, repeat, run_log
from swarden.harness.engines.own.faults import PERTURBATIONS, SENT, USED
from swarden.harness.perturbed.system import Misattributed, PerturbedSystem, Unnoticed
from swarden.harness.search.shrink import ShrinkBudget, shrink


def noticed_log(fault: str) -> OpLog:
    """A log whose perturbation is noticed."""
    logs = (log_with(fault, seed) for seed in range(20))
    log = next(log for log in logs if has_noticed(run_log(log)))
    return OpLog(log.header, [*log.ops, Drain()])


def has_noticed(driver: Driver) -> bool:
    return any(isinstance(system, PerturbedSystem) and system.is_over for system in driver.systems)


def broken_check(healthy: str, broken: str) -> Mutant:
    """A check whose comparison of bytes is broken."""
    hunk = Hunk("swarden.harness.engines.own.content.slots:SlotTable.altered", healthy, broken)
    return Mutant("broken", "made up for a test", (hunk,), ("made_up",))


BLIND = broken_check("if not len(known):", "if True:")
WRONG_PAGE = broken_check("zip(pages.tolist(),", "zip((pages + 1).tolist(),")
FALSE_ALARM = broken_check("return []", "return [(1, 0)]")


def failure_under(check: Mutant, log: OpLog) -> Failure:
    with check.planted():
        failure = run_log(log).failure
    assert failure is not None
    return failure


@pytest.mark.parametrize("fault", PERTURBATIONS)
def test_log_of_a_noticed_perturbation_replays_as_healthy(fault):
    """The run has ended then: the drain has nothing to do."""
    log = OpLog.parse(noticed_log(fault).to_bytes(), Path("noticed.oplog"))

    repeated = repeat(log, 2)

    assert (repeated.verdict, repeated.first_difference) == (Verdict.FIXED, None)


def test_check_that_compares_no_bytes_fails_the_run():
    failure = failure_under(BLIND, noticed_log(USED))

    assert isinstance(failure.error, Unnoticed)
    assert str(failure.error).endswith(": it was read, and was not noticed")


def test_check_that_blames_another_page_fails_the_run():
    assert isinstance(failure_under(WRONG_PAGE, noticed_log(USED)).error, Misattributed)


def test_check_that_blames_a_healthy_engine_fails_the_run():
    log = noticed_log(USED)
    healthy = OpLog(log.header, [op for op in log.ops if not isinstance(op, Inject)])

    assert isinstance(failure_under(FALSE_ALARM, healthy).error, Misattributed)


def test_failing_log_is_shrunk():
    log = noticed_log(USED)
    failure = failure_under(BLIND, log)

    with BLIND.planted():
        small = shrink(log, lambda one: failure_like(one, failure.fingerprint), ShrinkBudget(executions=200)).log

    assert len(small.ops) <= 6
    assert failure_under(BLIND, small).fingerprints == failure.fingerprints


def test_machine_of_healthy_engines_has_no_perturbations():
    header = f'{{"format":2,"engine":"swarden","machine":"engine","configs":[{{}}],"faults":["{SENT}"]}}\n'

    with pytest.raises(OpLogError, match=f"unknown fault {SENT}"):
        OpLog.parse(header.encode(), Path("hostile.oplog"))
