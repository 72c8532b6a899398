"""`swarden attach --require`: the command is the child of the check, and ends if no scheduler of it is checked."""

import os
import signal
import sys
from pathlib import Path

import pytest

from tests.harness.some_processes import running, swarden_process, wait_until

PACKAGE = "vllm/v1/core/sched"
IMPORT = "import vllm.v1.core.sched.scheduler"
REPORT = """
import json, os
from swarden.harness.strict.status import State, report
report(json.loads(os.environ["SWARDEN_ATTACH"]), State.ATTACHED)
"""
WAIT = "import signal; signal.pause()"
ON_SIGNAL = """
import pathlib, signal, sys
def stop(number, frame):
    print(number, flush=True)
    sys.exit(9)
signal.signal(signal.SIGTERM, stop)
pathlib.Path("ready").touch()
while True:
    signal.pause()
"""
OF_A_FAMILY = """
import os, pathlib, signal
parent, pipe = os.getpid(), os.pipe()
def stop(number, frame):
    os.write(1, b"parent " if os.getpid() == parent else b"child ")
    os._exit(9)
for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
    signal.signal(number, stop)
if os.fork():
    pathlib.Path("ready").touch()
    signal.pause()
os.close(pipe[1])
os.read(pipe[0], 1)  # until the parent has ended
"""
NO_HOOK = "no process has imported the scheduler's module and our hook"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A package with a scheduler that has none of the methods that are followed."""
    for path in (Path(PACKAGE), *Path(PACKAGE).parents[:-1]):
        (tmp_path / path).mkdir(parents=True, exist_ok=True)
        (tmp_path / path / "__init__.py").touch()
    (tmp_path / PACKAGE / "scheduler.py").write_text("class Scheduler: ...")
    return tmp_path


def required(folder: Path, *command: str, seconds: int = 600):
    path = f"{folder}:{Path(__file__).parents[3]}"
    options = ("vllm", "--require", "--require-seconds", seconds, "--")
    return swarden_process("attach", *options, *command, cwd=folder, PYTHONPATH=path)


@pytest.mark.parametrize(
    ("command", "seconds", "reason"),
    [
        pytest.param(("env", "-i", sys.executable, "-c", WAIT), 1, NO_HOOK, id="environment-without-the-hook"),
        pytest.param((sys.executable, "-I", "-c", WAIT), 1, NO_HOOK, id="isolated"),
        pytest.param((sys.executable, "-c", f"{IMPORT}; {WAIT}"), 600, "it has no add_request", id="refused"),
        pytest.param((sys.executable, "-c", ""), 600, "the command ended with exit code 0", id="no-scheduler"),
    ],
)
def test_command_without_a_checked_scheduler_is_ended_with_the_reason(folder, command, seconds, reason):
    run = required(folder, *command, seconds=seconds)

    assert run.returncode == 2
    assert reason in run.stderr


@pytest.mark.parametrize("code", [0, 3])
def test_exit_code_of_a_checked_command_is_that_of_attach(folder, code):
    run = required(folder, sys.executable, "-c", f"{REPORT}raise SystemExit({code})")

    assert (run.returncode, run.stderr) == (code, "")


def test_exit_code_of_a_failed_command_is_kept(folder):
    assert required(folder, sys.executable, "-c", "raise SystemExit(7)").returncode == 7


def test_command_gets_each_signal_once_and_its_exit_code_is_kept(folder):
    command = ("attach", "vllm", "--require", "--", sys.executable, "-c", REPORT + ON_SIGNAL)
    with running(*command, cwd=folder) as process:
        wait_until((folder / "ready").exists)
        process.send_signal(signal.SIGTERM)
        output, errors = process.communicate()

    assert (process.returncode, output.split(), errors) == (9, [b"15"], b"")


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize(("send", "reached"), [(os.killpg, ["child", "parent"]), (os.kill, ["parent"])])
def test_signal_reaches_the_processes_that_it_would_reach_without_swarden(folder, send, reached, number):
    with running("attach", "vllm", "--require", "--", sys.executable, "-c", OF_A_FAMILY, cwd=folder) as process:
        wait_until((folder / "ready").exists)
        send(process.pid, number)
        output, errors = process.communicate()

    assert (process.returncode, sorted(output.decode().split()), errors) == (9, reached, b"")


def test_command_that_a_signal_ends_has_its_number_in_the_exit_code(folder):
    run = required(folder, sys.executable, "-c", f"{REPORT}import signal; signal.raise_signal(signal.SIGKILL)")

    assert run.returncode == 128 + signal.SIGKILL
