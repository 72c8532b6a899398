"""The command line: which commands there are, and the one place where misuse ends."""

import os
import sys
import traceback
from collections.abc import Callable
from functools import partial

import typer

from engine_under_test.errors import AccountingError, CheckpointError, ConfigError
from engine_under_test.strict import setting_of
from harness.commands.bench import bench
from harness.commands.console import ERR, OUT, StandardOutputError
from harness.commands.fuzz import fuzz
from harness.commands.generate import generate
from harness.commands.mutants import app as mutants
from harness.commands.replay import replay
from harness.commands.show import show
from harness.commands.shrink import shrink
from harness.commands.trace import trace
from harness.core.errors import UsageError
from harness.core.exit_codes import ExitCode

app = typer.Typer(
    help="Finds KV-memory bugs in serving engines: random traffic, invariants after every step, small repros.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
for command in (fuzz, replay, shrink, show, trace, generate, bench):
    app.command()(command)
app.add_typer(mutants, name="mutants")


def main() -> None:
    """Run the command that the arguments name."""
    sys.exit(run(partial(app, standalone_mode=False)))


def run(command: Callable[[], int | None]) -> int:
    """The exit code of a command. A mistake of the user and an operating error are one line on standard error."""
    try:
        setting_of(os.environ)
        code = command() or ExitCode.CLEAN
        OUT.file.flush()
    except SystemExit:  # rich raises it where typer's help meets a closed pipe; commands return their exit code
        code = _stop_writing(BrokenPipeError())
    except StandardOutputError as error:
        code = _stop_writing(error.reason)
    except (UsageError, ConfigError, CheckpointError) as error:
        code = _misuse(str(error))
    except typer.TyperException as error:
        code = _misuse(error.format_message())
    except OSError as error:
        place = f"{error.filename}: " if error.filename is not None else ""
        code = _misuse(f"{place}{error.strerror or error}")
    except AccountingError as error:  # of the strict check, with its story
        ERR.print(str(error), markup=False)
        code = ExitCode.VIOLATED
    except (typer.Abort, KeyboardInterrupt):
        ERR.print("swarden: interrupted")
        code = ExitCode.INTERRUPTED
    except Exception:  # Python's own exit code for it, 1, means a violation here
        traceback.print_exc()
        ERR.print("swarden: this is a fault of swarden itself; please report it")
        code = ExitCode.FAULT
    return code


def _misuse(what: str) -> ExitCode:
    """Empty where the help was shown instead."""
    if what:
        ERR.print(f"swarden: {' '.join(what.splitlines())}", markup=False)
    return ExitCode.MISUSE


def _stop_writing(reason: OSError) -> ExitCode:
    """Standard output is closed or full: the interpreter must not try to write to it once more at its end."""
    if not isinstance(reason, BrokenPipeError):
        ERR.print(f"swarden: standard output cannot be written: {reason.strerror}", markup=False)
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return ExitCode.MISUSE
