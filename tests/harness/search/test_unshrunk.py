"""Unshrunk logs of random runs are shrunk to few ops, at a low cost."""

from functools import partial
from pathlib import Path

import pytest

from swarden.harness.core.admission import load_log
from swarden.harness.core.driver import Failure
from swarden.harness.core.oplog import OpLog
from swarden.harness.core.replay import failure_like
from swarden.harness.search.shrink.shrink import ShrinkBudget, measure, shrink

UNSHRUNK = Path(__file__).parent / "unshrunk"


@pytest.mark.parametrize(
    ("mutant", "num_ops", "num_steps", "op_calls"),
    [("S73", 5, 2, 900), ("S75", 3, 1, 400), ("S152", 5, 2, 900), ("S154", 4, 1, 200)],
)
def test_log_of_a_planted_bug_is_shrunk_to_few_ops(mutant, num_ops, num_steps, op_calls):
    """The logs have 26 to 119 ops."""
    log = load_log(UNSHRUNK / f"{mutant}.oplog")
    assert log.header.expected is not None

    small = shrink(log, partial(failure_like, fingerprint=log.header.expected), ShrinkBudget(cpu_seconds=60))

    assert measure(small.log)[:2] <= (num_ops, num_steps)
    assert small.op_calls <= op_calls


@pytest.mark.parametrize("executions", [5, 20])
def test_shrink_goes_on_from_where_its_budget_has_ended(executions):
    """Only the log itself is run again, and no earlier candidate."""
    log, ran = load_log(UNSHRUNK / "S75.oplog"), []

    def still_fails(candidate: OpLog) -> Failure | None:
        ran.append(candidate.to_bytes())
        return failure_like(candidate, str(log.header.expected))

    first = shrink(log, still_fails, ShrinkBudget(executions=executions))
    second = shrink(first.log, still_fails, ShrinkBudget(cpu_seconds=60), passed=first.passed)

    assert (first.complete, len(ran) - len({*ran}) <= 1) == (False, True)
    assert measure(second.log)[:2] <= (3, 1)
