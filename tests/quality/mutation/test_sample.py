"""The tool prints a summary, and continues a sample after an interrupt."""

import json
import subprocess
import sys

from tests.harness.some_processes import DEADLINE_S
from tests.quality.mutation.__main__ import ROOT

SAMPLE = ("engine_under_test/pools", "--count", "2", "--runs", "1", "--seconds", "1")


def sampled(folder):
    """Run the tool in its own process."""
    return subprocess.run(
        [sys.executable, "-m", "tests.quality.mutation", *SAMPLE, "--out", folder / "results.jsonl"],
        cwd=ROOT,
        env={"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=True,
    )


def test_second_call_repeats_no_trial_and_prints_the_same_summary(tmp_path):
    first, second = sampled(tmp_path), sampled(tmp_path)

    figures = json.loads(first.stdout)
    assert json.loads(second.stdout) == figures
    assert set(figures) == {"mutations", "killed", "survived", "equivalent", "killed_share", "folders", "survivors"}
    assert figures["mutations"] == figures["killed"] + figures["survived"] + figures["equivalent"] == 2
    assert "2 of 2: " in first.stderr
    assert "of 2: " not in second.stderr
