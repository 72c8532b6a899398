"""swarden repro with the known bugs of SGLang: an issue without a program."""

from docs.make.pages import ROOT
from tests.harness.some_processes import swarden_process


def test_issue_of_a_pair_has_no_program():
    run = swarden_process("repro", "prompt-never-preallocated", "--as", "issue", cwd=ROOT)

    assert (run.returncode, run.stderr) == (0, "")
    assert "## Steps" in run.stdout
    assert "No program: it needs both servers" in run.stdout
