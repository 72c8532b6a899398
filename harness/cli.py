"""The command line: which commands there are, and the one place where misuse ends.

A command's module is imported when it is named, so that help costs nothing, and a command needs no more than it uses.
"""

import os
import sys
import traceback
from collections.abc import Callable
from functools import partial
from importlib.metadata import EntryPoint, version
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

from engine_under_test.errors import AccountingError, CheckpointError, ConfigError
from harness.commands.console import ERR, OUT, StandardOutputError
from harness.core.errors import INSTALL_ENGINE, UsageError
from harness.core.exit_codes import ExitCode

COMMANDS = {
    "fuzz": "Drive an engine with random traffic; check every step; shrink and keep what fails.",
    "replay": "Run op-logs again: FIXED, FAILED, CHANGED, FLAKY or ERROR each.",
    "shrink": "Make a failing op-log smaller.",
    "show": "An op-log as a table of operations and steps, or the whole state after one step.",
    "engines": "Which engines are installed, and in which versions.",
    "mutants": "Planted bugs by their number: list them, hunt them, or say which law finds which.",
    "attach": "Run a server of an engine with the strict memory check attached to its scheduler.",
    "trace": "Serve a production request trace on our engine.",
    "generate": "Run a checkpoint on our engine.",
    "bench": "The benchmarks, as ratios.",
}


class Commands(TyperGroup):
    """Commands of which only the names and the help are known, until one of them is named on the command line."""

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        name, _, rest = super().resolve_command(ctx, args)
        return name, None if name is None else get_command(_loaded(name)), rest


app = typer.Typer(
    cls=Commands,
    help="Finds KV-memory bugs in serving engines: random traffic, invariants after every step, small repros.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
for command, told in COMMANDS.items():
    app.command(command, help=told)(lambda: None)


def main() -> None:
    """Run the command that the arguments name."""
    sys.exit(run(partial(app, standalone_mode=False)))


def _print_version(is_asked: bool) -> None:
    if is_asked:
        OUT.print(f"swarden {version('swarden')}", markup=False)
        raise typer.Exit


@app.callback()
def _options(
    _version: Annotated[
        bool, typer.Option("--version", help="print the version", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Options without a command."""


def _loaded(name: str) -> typer.Typer:
    """The command of that name; raises UsageError where it needs our own engine, and that lacks a package."""
    try:
        found: typer.Typer | Callable[..., None] = EntryPoint(name, f"harness.commands.{name}:{name}", "").load()
    except ModuleNotFoundError as error:
        raise UsageError(f"{name}: {error}; {INSTALL_ENGINE}") from error
    if isinstance(found, typer.Typer):
        return found
    alone = typer.Typer(add_completion=False)
    alone.command(name)(found)
    return alone


def run(command: Callable[[], int | None]) -> int:
    """The exit code of a command. A mistake of the user and an operating error are one line on standard error."""
    try:
        code = command() or ExitCode.CLEAN
        OUT.file.flush()
    except SystemExit as end:  # of the shell's completion, or of rich where help meets a closed pipe
        code = _stop_writing(BrokenPipeError()) if end.code else ExitCode.CLEAN
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


if __name__ == "__main__":
    main()
