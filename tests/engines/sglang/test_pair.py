"""A prefill and a decode side of a release, each release in a process of its own."""

import subprocess
import sys
from pathlib import Path

import pytest

from harness.engines.sglang import releases

CAPPED = Path(__file__).parent / "oplogs" / "prompt-capped-by-the-windowed-pool.oplog"


@pytest.mark.parametrize(
    ("version", "verdict"), [("0.5.12.post1", "FAILED"), ("0.5.23", "FIXED")], ids=["0.5.12.post1", "0.5.23"]
)
def test_prompt_that_the_full_pool_holds_is_rejected_only_before_its_fix(version, verdict):
    """sglang pull 26607: the prefill side took the windowed pool for the limit of a prompt."""
    if version not in releases.installed():
        pytest.fail(f"sglang {version} is not installed; run: swarden engines install sglang=={version}")
    command = [sys.executable, "-m", "harness.cli", "replay", "--engine", f"sglang=={version}", str(CAPPED)]

    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert done.stdout.startswith(verdict), done.stdout + done.stderr
