"""The command line: which commands there are, and the one place where misuse ends."""

import os
import sys

import typer

from engine_under_test.errors import CheckpointError, ConfigError
from engine_under_test.strict import setting_of
from harness.commands.bench import bench
from harness.commands.console import ERR
from harness.commands.fuzz import fuzz
from harness.commands.generate import generate
from harness.commands.mutants import app as mutants
from harness.commands.replay import replay
from harness.commands.show import show
from harness.commands.shrink import shrink
from harness.commands.trace import trace
from harness.errors import UsageError
from harness.exit_codes import ExitCode

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
    """Run a command; what a user got wrong is one line on standard error."""
    try:
        setting_of(os.environ)
        code = app(standalone_mode=False) or ExitCode.CLEAN
        if sys.stdout is not None:
            sys.stdout.flush()
    except SystemExit:  # a broken pipe, in the words of rich; how a command ends is what it returns
        code = _unheard(BrokenPipeError())
    except (UsageError, ConfigError, CheckpointError) as error:
        code = _misuse(str(error))
    except typer.TyperException as error:
        code = _misuse(error.format_message())
    except OSError as error:
        code = _unheard(error)
    sys.exit(code)


def _misuse(what: str) -> ExitCode:
    """Empty where the help was shown instead."""
    if what:
        ERR.print(f"swarden: {' '.join(what.splitlines())}", markup=False)
    return ExitCode.MISUSE


def _unheard(error: OSError) -> ExitCode:
    """Standard output is closed or full: no more can be told there, not even at the interpreter's end."""
    if not isinstance(error, BrokenPipeError):
        ERR.print(f"swarden: standard output cannot be written: {error.strerror}", markup=False)
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return ExitCode.MISUSE
