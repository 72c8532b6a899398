"""What random traffic once found in our own engine, or in our own laws, stays found and mended."""

from pathlib import Path

import pytest

from harness.core.oplog import OpLog
from harness.core.replay import run_log

REGRESSIONS = sorted((Path(__file__).parent / "regressions").glob("*.oplog"))


@pytest.mark.parametrize("path", REGRESSIONS, ids=lambda path: path.stem)
def test_what_was_mended_stays_clean(path):
    """The ops that failed once; the header says with which fingerprint."""
    assert run_log(OpLog.load(path)).failure is None
