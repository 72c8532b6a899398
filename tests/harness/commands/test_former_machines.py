"""An op-log of an earlier build, whose machine is a test of tests/quality now, is an error that says so."""

import pytest

from tests.harness.some_commands import swarden

LOG = '{"format":2,"engine":"swarden","machine":"ledger","configs":[{}]}\n{"op":"take"}\n'
WHY = "machine ledger is a test of tests/quality now, and no machine any more"


@pytest.mark.parametrize("command", ["replay", "show", "shrink"])
def test_command_names_the_former_machine(command, tmp_path):
    (tmp_path / "old.oplog").write_text(LOG)

    run = swarden(command, "old.oplog", cwd=tmp_path)

    [line] = (run.stdout + run.stderr).splitlines()
    assert run.returncode == 2
    assert f"old.oplog:1: the header: {WHY}" in line
