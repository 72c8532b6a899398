"""Commands that are interrupted: the exit code is 1 with a confirmed finding, else 130."""

import signal
from pathlib import Path

import pytest

from tests.harness.commands.test_commands import OPLOGS
from tests.harness.some_processes import running, wait_until

FUZZ = ("fuzz", "--profile", "smoke", "--workers", 1, "--seed", 1, "--out", "out")
NIGHTLY = ("nightly", "--engine", "demo", "--profile", "smoke", "--workers", 1, "--archive", "a", "--seed", 1)
UNSHRUNK = "out/*.unshrunk.oplog"
FORKED = "/proc/{pid}/task/{pid}/children"  # not empty: what the command needs is imported
SETTLED = "a/nights/*/report.md"


@pytest.mark.parametrize(
    ("number", "command", "sign", "code"),
    [
        pytest.param(signal.SIGINT, (*FUZZ, "--minutes", 9), "out/*.running.oplog", 130, id="fuzz"),
        pytest.param(
            signal.SIGTERM, (*FUZZ, "--minutes", 9, "--engine", "demo"), UNSHRUNK, 1, id="fuzz-with-a-finding"
        ),
        pytest.param(
            signal.SIGINT, ("fuzz", "--exhaustive", 9, "--out", "out", "--minutes", 9), FORKED, 130, id="exhaustive"
        ),
        pytest.param(
            signal.SIGTERM,
            ("fuzz", "--exhaustive", 9, "--out", "out", "--minutes", 9, "--mutant", "B3"),
            "out/*.oplog",
            1,
            id="exhaustive-with-a-finding",
        ),
        pytest.param(signal.SIGINT, (*NIGHTLY, "--minutes", 9), "a/nights/*/shards/*.json", 130, id="nightly"),
        pytest.param(signal.SIGTERM, (*NIGHTLY, "--runs", 8), SETTLED, 1, id="nightly-with-a-finding"),
        pytest.param(
            signal.SIGINT,
            ("replay", "--repeat", 99999, "--events", "events", OPLOGS / "B18.oplog"),
            "events",
            130,
            id="replay",
        ),
    ],
)
def test_interrupted_command_exits_with_1_if_a_finding_is_confirmed_else_with_130(
    tmp_path, number, command, sign, code
):
    """The command is interrupted once a file shows its progress, or once it has started a process."""
    with running(*command, cwd=tmp_path) as process:
        children = Path(FORKED.format(pid=process.pid))
        wait_until(lambda: bool(children.read_text()) if sign == FORKED else any(tmp_path.glob(sign)))
        process.send_signal(number)
        output, errors = process.communicate()

    assert process.returncode == code, (output, errors)
    assert b"Traceback" not in errors
