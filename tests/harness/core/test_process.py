"""A process that runs functions: its results, its Python, and its death as data."""

import ctypes
import os
import signal
import sys
import venv
from itertools import count
from multiprocessing import get_context
from pathlib import Path

import msgspec
import pytest

import swarden
from swarden.harness.core.admission import parse_log
from swarden.harness.core.errors import UsageError
from swarden.harness.core.oplog import Header, OpLog
from swarden.harness.core.ops import Step, Submit
from swarden.harness.core.process import Interpreter, Parent, Process, ProcessDied, ProcessLimits

LOG = OpLog(Header(engine="demo", configs=[{}]), [Submit(), Step()])
GIB = 1 << 30


def count_up(parent: Parent, last: int) -> str:
    for number in range(last):
        parent.send(number)
    return "the end"


def misuse() -> None:
    raise UsageError("no such page")


def kill_itself() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def read_nowhere() -> None:
    ctypes.string_at(0)


def exit_with_3() -> None:
    sys.exit(3)


def allocate() -> None:
    bytearray(4 * GIB)


def raise_an_error() -> None:
    raise ValueError("of swarden")


def loop(parent: Parent) -> None:
    parent.beat()
    for _ in count():
        pass


def result_in_another_process() -> int:
    with Process() as process:
        result: int = process.call(abs, -1)
        return result


def test_messages_of_a_task_come_before_its_result():
    with Process() as process:
        assert list(process.stream(count_up, 3)) == [0, 1, 2, "the end"]


def test_mistake_of_the_user_is_raised_and_the_process_goes_on():
    with Process() as process:
        with pytest.raises(UsageError, match="no such page"):
            process.call(misuse)

        assert process.call(abs, -1) == 1


@pytest.mark.parametrize(
    ("function", "name", "how", "stack"),
    [
        pytest.param(kill_itself, "crash/SIGKILL", "was killed by SIGKILL", "", id="killed"),
        pytest.param(read_nowhere, "crash/SIGSEGV", "was killed by SIGSEGV", "in read_nowhere", id="crash"),
        pytest.param(exit_with_3, "crash/exit", "ended with exit code 3", "", id="exit"),
        pytest.param(allocate, "crash/MemoryError", "ran out of memory", "in allocate", id="out-of-memory"),
        pytest.param(
            raise_an_error,
            f"fault/ValueError/{__name__}.raise_an_error",
            "met an internal error, ValueError: of swarden,",
            "in raise_an_error",
            id="internal-error",
        ),
    ],
)
def test_death_of_a_process_is_data(function, name, how, stack):
    with Process(limits=ProcessLimits(memory_bytes=GIB)) as process, pytest.raises(ProcessDied) as died:
        process.call(function)

    death = died.value.death
    assert (death.name, death.how, stack in death.stack) == (name, how, True), death


def test_process_without_progress_is_killed_and_leaves_its_stack():
    with Process(limits=ProcessLimits(hang_seconds=1)) as process, pytest.raises(ProcessDied) as died:
        list(process.stream(loop))

    death = died.value.death
    assert (death.name, death.how, "in loop" in death.stack) == ("hang", "stopped answering for 1 s", True), death


def test_process_ends_with_an_iterator_that_is_left():
    with Process() as process:
        messages = process.stream(count_up, 3)
        next(messages)
        messages.close()

        with pytest.raises(ProcessDied):
            process.call(int)


def test_python_of_another_environment_runs_swarden(tmp_path):
    """Its own path has neither swarden nor msgspec."""
    venv.create(tmp_path / "other", symlinks=True)
    root, packages = (Path(str(module.__file__)).parents[1] for module in (swarden, msgspec))
    python = Interpreter(str(tmp_path / "other/bin/python"), [str(root), str(packages)], {"OF_THE_OTHER": "1"})

    with Process(interpreter=python) as process:
        assert process.call(eval, "(__import__('sys').prefix, __import__('os').environ['OF_THE_OTHER'])") == (
            str(tmp_path / "other"),
            "1",
        )
        assert process.call(parse_log, LOG.to_bytes(), Path("a.oplog")).ops == LOG.ops


def test_daemonic_process_has_processes():
    """The nodes of a cluster scheduler are such processes."""
    with get_context("spawn").Pool(1) as pool:
        assert pool.apply(result_in_another_process) == 1
