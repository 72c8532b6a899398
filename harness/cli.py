"""The command line: which commands there are, and the one place where misuse ends."""

import sys

import typer

from harness.commands.bench import bench
from harness.commands.console import ERR
from harness.commands.fuzz import fuzz
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
for command in (fuzz, replay, shrink, show, trace, bench):
    app.command()(command)
app.add_typer(mutants, name="mutants")


def main() -> None:
    """Run a command; what a user got wrong is one line on standard error."""
    try:
        app()
    except UsageError as error:
        ERR.print(f"swarden: {error}", markup=False)
        sys.exit(ExitCode.MISUSE)
