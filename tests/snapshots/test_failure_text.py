"""The whole text of a failure, as a person reads it."""

from pathlib import Path

import pytest

from harness.core.oplog import OpLog
from harness.core.replay import run_log
from harness.report.story import story_lines

HERE = Path(__file__).parent
OPLOGS = Path("tests/quality/oplogs")


@pytest.mark.parametrize("name", ["B18", "B20"])
def test_a_failure_is_told_with_heading_claim_evidence_history_equations_and_replay_line(name):
    """A change of this text is made on purpose, with the file beside this test; lines of the engine are not in it."""
    log = OpLog.load(HERE.parents[1] / OPLOGS / f"{name}.oplog")
    failure = run_log(log).failure

    assert failure is not None
    told = [str(line) for line in story_lines(log.header, failure, OPLOGS / f"{name}.oplog")]
    assert [line for line in told if ".py:" not in line] == (HERE / f"{name}.txt").read_text().splitlines()
