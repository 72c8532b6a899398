"""swarden repro with the known bugs of SGLang: what it refuses, and an issue without a program."""

from docs.make.pages import ROOT
from tests.harness.some_processes import swarden_process


def test_client_of_a_log_whose_failure_it_cannot_see_is_refused():
    run = swarden_process("repro", "window-backup-reported-as-host-copy", "--as", "http", cwd=ROOT)

    assert (run.returncode, run.stdout) == (2, "")
    assert "a client sees only requests without an answer" in run.stderr
    assert len(run.stderr.splitlines()) == 1


def test_issue_of_a_pair_has_no_program():
    run = swarden_process("repro", "prompt-never-preallocated", "--as", "issue", cwd=ROOT)

    assert (run.returncode, run.stderr) == (0, "")
    assert "## Steps" in run.stdout
    assert "No program: it needs both servers" in run.stdout
