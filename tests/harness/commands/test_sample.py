"""swarden mutants sample: what it prints, and that it goes on where it was ended."""

import json
import subprocess
import sys
from pathlib import Path

SAMPLE = ("mutants", "sample", "engine_under_test/pools", "--count", "2", "--runs", "1", "--seconds", "1", "--json")


RUN = "from harness.cli import main; main()"
RUN_WITHOUT_COSMIC_RAY = f"import sys; sys.modules['cosmic_ray'] = None; {RUN}"


def swarden(*arguments, cwd, code=RUN):
    """Run the command as a process of its own."""
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=cwd,
        env={"PYTHONPATH": str(Path(__file__).parents[3]), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_a_sample_is_told_and_need_not_be_tried_again(tmp_path):
    """The second time nothing is left, and the sum is the same."""
    first, second = swarden(*SAMPLE, cwd=tmp_path), swarden(*SAMPLE, cwd=tmp_path)

    told = json.loads(first.stdout)
    assert (first.returncode, second.returncode) == (0, 0), first.stderr
    assert json.loads(second.stdout) == told
    assert set(told) == {"mutations", "killed", "survived", "equivalent", "killed_share", "folders", "survivors"}
    assert told["mutations"] == told["killed"] + told["survived"] + told["equivalent"] == 2
    assert "2 of 2: " in first.stderr
    assert "of 2: " not in second.stderr


def test_a_sample_without_cosmic_ray_names_the_extra_to_install(tmp_path):
    run = swarden(*SAMPLE, cwd=tmp_path, code=RUN_WITHOUT_COSMIC_RAY)

    [line] = run.stderr.splitlines()
    assert (run.returncode, run.stdout) == (2, "")
    assert line.startswith("swarden: mutants sample: cosmic_ray")
    assert line.endswith(f"{sys.executable} -m pip install 'swarden[mutation]'")
    assert list(tmp_path.iterdir()) == []
