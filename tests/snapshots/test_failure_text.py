"""The whole text of a failure, as a person reads it."""

from pathlib import Path

import pytest

from harness.oplog import OpLog
from harness.replay import run_log
from harness.report import failure_text

HERE = Path(__file__).parent
OPLOGS = Path("tests/quality/oplogs")


@pytest.mark.parametrize("name", ["B3", "B18"])
def test_a_failure_is_told_with_claim_evidence_history_equations_and_replay_line(name):
    """A change of this text is made on purpose, with the file beside this test."""
    failure = run_log(OpLog.load(HERE.parents[1] / OPLOGS / f"{name}.oplog")).failure

    assert failure is not None
    assert failure_text(failure, OPLOGS / f"{name}.oplog") + "\n" == (HERE / f"{name}.txt").read_text()
