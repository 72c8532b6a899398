"""The whole text of a failure."""

from pathlib import Path

import pytest

from swarden.harness.core.admission import load_log
from swarden.harness.core.replay import run_log
from swarden.harness.report.story import story_lines

HERE = Path(__file__).parent
OPLOGS = Path("tests/quality/oplogs")


@pytest.mark.parametrize("name", ["B18", "B20"])
def test_story_has_heading_law_evidence_history_equations_and_replay_line(name):
    """The expected text is in a file beside this test, without the lines that name lines of the engine."""
    log = load_log(HERE.parents[1] / OPLOGS / f"{name}.oplog")
    failure = run_log(log).failure

    assert failure is not None
    lines = [str(line) for line in story_lines(log.header, failure, OPLOGS / f"{name}.oplog")]
    assert [line for line in lines if ".py:" not in line] == (HERE / f"{name}.txt").read_text().splitlines()
