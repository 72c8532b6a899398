"""The quick start: its steps run as a reader runs them, and its finding has the lines that it explains."""

import os
import re
import subprocess
import venv

from docs.make.pages import ROOT
from tests.harness.some_processes import swarden_process
from tests.test_docs import FENCED

PAGE = (ROOT / "docs/quickstart.md").read_text()
STEPS = [line for block in FENCED.findall(PAGE) for line in block.splitlines()]
MOST_S = 1200  # of a step, which takes up to two minutes; a step that is blocked ends, too
ENDS = {  # exit code and a part of the output, by the beginning of the command; 0 for the others
    "swarden fuzz": (1, "new: "),
    "swarden replay": (1, "FAILED "),
    "swarden bisect": (0, "0.5.17: FAILED"),
    "pytest": (1, "1 failed"),
    "swarden repro": (1, "BUG: "),
}
COMMAND = re.compile(r"^swarden replay harness/\S+ --engine sglang==\S+$", re.MULTILINE)
PART = re.compile(r"^\| (?:heading|operations|law|evidence|history|equations) \| (.*?) \| ", re.MULTILINE)


def test_lines_that_the_quick_start_explains_are_those_of_its_op_log():
    [command] = COMMAND.findall(PAGE)
    shown = swarden_process(*command.split()[1:], cwd=ROOT).stdout

    lines = [line.removesuffix("…") for part in PART.findall(PAGE) for line in re.findall(r"`(.*?)`", part)]
    assert len(lines) >= 6
    assert [line for line in lines if line not in re.sub(r"  +", " ", shown)] == []


def test_steps_of_the_quick_start_end_as_the_page_says_in_an_empty_environment(tmp_path):
    """They run in a clone of the last commit."""
    subprocess.run(["git", "clone", "-q", ROOT, tmp_path / "clone"], check=True)
    venv.create(tmp_path / "environment", with_pip=True)
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    variables = kept | {"PATH": f"{tmp_path / 'environment/bin'}{os.pathsep}{kept['PATH']}"}
    for step in STEPS:
        command = ["timeout", str(MOST_S), "bash", "-c", f"{step} 2>&1"]
        run = subprocess.run(
            command, cwd=tmp_path / "clone", env=variables, stdout=subprocess.PIPE, text=True, check=False
        )
        code, part = next((end for beginning, end in ENDS.items() if step.startswith(beginning)), (0, ""))

        assert (run.returncode, part in run.stdout) == (code, True), f"{step}: {run.stdout}"
