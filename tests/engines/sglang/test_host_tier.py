"""Bugs of the hierarchical cache are found where releases have them, and nothing is found where they are mended."""

import subprocess
import sys
from pathlib import Path

import pytest

from harness.engines.sglang.releases import SGLANG

OPLOGS = Path(__file__).parent / "oplogs"


def replay(name: str, version: str) -> str:
    """The verdict of an op-log on a release, which needs a process of its own."""
    if version not in SGLANG.installed():
        pytest.fail(f"sglang {version} is not installed; run: swarden engines install sglang=={version}")
    command = [sys.executable, "-m", "harness.cli", "replay", "--engine", f"sglang=={version}", str(OPLOGS / name)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=300)
    return str(run.stdout.partition(" ")[0])


@pytest.mark.parametrize(
    ("name", "present", "mended"),
    [
        pytest.param("load_back_outside_budget.oplog", "0.5.12.post1", "0.5.13.post1", id="pull-27391"),
        pytest.param("load_races_pass_in_flight.oplog", "0.5.17", "0.5.23", id="pull-36738"),
        pytest.param("lock_released_below_split.oplog", "0.5.12.post1", "0.5.23", id="pull-36848"),
    ],
)
def test_bug_of_the_host_tier_is_told_only_where_it_is(name, present, mended):
    verdicts = replay(name, present), replay(name, mended)

    assert verdicts == ("FAILED", "FIXED")
