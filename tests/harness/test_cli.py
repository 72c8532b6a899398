"""How the command line ends when something cannot be read or written, or when swarden itself is at fault."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from engine_under_test.config import EngineConfig
from engine_under_test.errors import AccountingError
from harness.cli import run
from harness.core.oplog import Header, OpLog
from harness.core.ops import Drain, Submit
from harness.core.registry import OWN


@pytest.fixture
def passing(tmp_path: Path) -> Path:
    """The op-log of a run in which nothing fails."""
    path = tmp_path / "passing.oplog"
    OpLog(Header(engine=OWN, machine="engine", configs=[EngineConfig().to_mapping()]), (Submit(), Drain())).save(path)
    return path


@pytest.fixture
def end_of(capsys):
    """Exit code and standard error of the command line where a command raises `error`."""

    def end(error):
        def raising():
            raise error

        return run(raising), capsys.readouterr().err

    return end


@pytest.mark.parametrize(
    ("error", "line"),
    [
        pytest.param(
            OSError(13, "Permission denied", "a/file"), "swarden: a/file: Permission denied\n", id="of-a-file"
        ),
        pytest.param(OSError(28, "No space left on device"), "swarden: No space left on device\n", id="of-no-file"),
    ],
)
def test_an_operating_error_names_its_file(end_of, error, line):
    assert end_of(error) == (2, line)


def test_a_fault_of_swarden_shows_its_traceback_and_exits_with_70(end_of):
    """It must not read as a violation, which exits with 1."""
    code, told = end_of(KeyError("r3"))

    assert code == 70
    assert told.startswith("Traceback ")
    assert told.splitlines()[-2:] == ["KeyError: 'r3'", "swarden: this is a fault of swarden itself; please report it"]


def test_books_that_are_wrong_are_a_violation(end_of):
    """The strict check raises AccountingError with its story, which is told whole."""
    told = "unit_has_one_owner: broken\n  full page 3: owned by nobody"

    assert end_of(AccountingError(told)) == (1, f"{told}\n")


def test_an_interrupt_is_one_line_and_exits_with_130(end_of):
    assert end_of(typer.Abort()) == (130, "swarden: interrupted\n")


HEAVY = {"torch", "numpy", "hypothesis"}
PROBE = """
import sys, time
from harness.cli import application, run
sys.argv = ["swarden", *sys.argv[1:]]
code = run(lambda: application(lazy=True)(standalone_mode=False))
print(code, time.process_time(), *sys.modules, file=sys.stderr)
"""


@pytest.mark.parametrize(
    "arguments",
    [["--help"], ["--version"], ["replay", "none.oplog"]],
    ids=lambda arguments: " ".join(arguments),
)
def test_command_line_imports_only_what_a_task_needs(tmp_path, arguments):
    """Of replays, where no log names an engine that needs it."""
    run = subprocess.run(
        [sys.executable, "-c", PROBE, *arguments], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True
    )

    _, cpu_seconds, *modules = run.stderr.splitlines()[-1].split()
    assert HEAVY & set(modules) == set()
    assert float(cpu_seconds) < 2


def test_completion_names_commands_and_their_options(tmp_path):
    environment = {"_SWARDEN_COMPLETE": "complete_bash", "COMP_WORDS": "swarden replay --rep", "COMP_CWORD": "2"}
    told = subprocess.run(
        [sys.executable, "-c", "import sys; sys.argv[0] = 'swarden'; from harness.cli import main; main()"],
        cwd=tmp_path,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert told.stdout.split() == ["--repeat"]
