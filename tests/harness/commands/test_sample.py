"""`swarden mutants sample`: its output, and its continuation after an interrupt."""

import json
import subprocess
import sys
from pathlib import Path

from tests.harness.some_processes import DEADLINE_S, swarden

SAMPLE = ("mutants", "sample", "engine_under_test/pools", "--count", "2", "--runs", "1", "--seconds", "1", "--json")
RUN_WITHOUT_COSMIC_RAY = "import sys; sys.modules['cosmic_ray'] = None; from swarden.harness.cli import main; main()"


def swarden_without_cosmic_ray(cwd):
    return subprocess.run(
        [sys.executable, "-c", RUN_WITHOUT_COSMIC_RAY, *SAMPLE],
        cwd=cwd,
        env={"PYTHONPATH": str(Path(__file__).parents[3]), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )


def test_second_call_repeats_no_trial_and_prints_the_same_summary(tmp_path):
    first, second = swarden(*SAMPLE, cwd=tmp_path), swarden(*SAMPLE, cwd=tmp_path)

    figures = json.loads(first.stdout)
    assert (first.returncode, second.returncode) == (0, 0), first.stderr
    assert json.loads(second.stdout) == figures
    assert set(figures) == {"mutations", "killed", "survived", "equivalent", "killed_share", "folders", "survivors"}
    assert figures["mutations"] == figures["killed"] + figures["survived"] + figures["equivalent"] == 2
    assert "2 of 2: " in first.stderr
    assert "of 2: " not in second.stderr


def test_error_without_cosmic_ray_names_the_extra_to_install(tmp_path):
    run = swarden_without_cosmic_ray(tmp_path)

    [line] = run.stderr.splitlines()
    assert (run.returncode, run.stdout) == (2, "")
    assert line.startswith("swarden: mutants sample cannot be imported: No module named 'cosmic_ray")
    assert line.endswith("); pip install 'swarden[mutation]'")
    assert list(tmp_path.iterdir()) == []
