"""Regressions: op-logs of fixed bugs of our engine and of our laws, which random traffic found."""

from pathlib import Path

import pytest

from swarden.harness.core.admission import load_log
from swarden.harness.core.replay import run_log

REGRESSIONS = sorted((Path(__file__).parent / "regressions").glob("*.oplog"))


@pytest.mark.parametrize("path", REGRESSIONS, ids=lambda path: path.stem)
def test_op_log_of_a_fixed_bug_passes(path):
    """The header has the fingerprint of the former failure."""
    assert run_log(load_log(path)).failure is None
