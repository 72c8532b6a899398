"""An op-log of an earlier build, whose machine is a test of tests/quality now, or that has a twin, is one error."""

import pytest

from tests.harness.some_commands import swarden

LEDGER = '{"format":2,"engine":"swarden","machine":"ledger","configs":[{}]}\n{"op":"take"}\n'
TWIN = '{"format":3,"engine":"swarden","configs":[{}],"twin":{"settings":{"overlap":true}}}\n{"op":"step"}\n'
WHY = "machine ledger is a test of tests/quality now, and no machine any more"
WHY_TWIN = "the run has a twin, a second engine, which this build does not drive"


@pytest.mark.parametrize(
    ("command", "log", "why"),
    [("replay", LEDGER, WHY), ("show", LEDGER, WHY), ("shrink", LEDGER, WHY), ("replay", TWIN, WHY_TWIN)],
)
def test_command_names_what_only_the_former_build_had(command, log, why, tmp_path):
    (tmp_path / "old.oplog").write_text(log)

    run = swarden(command, "old.oplog", cwd=tmp_path)

    [line] = (run.stdout + run.stderr).splitlines()
    assert run.returncode == 2
    assert f"old.oplog:1: the header: {why}; remove the file, or use the build that wrote it" in line
