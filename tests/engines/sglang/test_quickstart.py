"""The finding that the quick start explains."""

import re

from tests.harness.some_processes import swarden_process
from tests.pages import ROOT

COMMAND = re.compile(r"^swarden replay harness/\S+ --engine sglang==\S+$", re.MULTILINE)
PART = re.compile(r"^\| (?:heading|operations|law|evidence|history|equations) \| (.*?) \| ", re.MULTILINE)


def test_lines_that_the_quick_start_explains_are_those_of_its_op_log():
    page = (ROOT / "docs/quickstart.md").read_text()
    [command] = COMMAND.findall(page)
    shown = swarden_process(*command.split()[1:], cwd=ROOT).stdout

    lines = [line.removesuffix("…") for part in PART.findall(page) for line in re.findall(r"`(.*?)`", part)]
    assert len(lines) >= 6
    assert [line for line in lines if line not in re.sub(r"  +", " ", shown)] == []
