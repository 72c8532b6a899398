"""The command line: its commands, and the exit code and the message of each error.

A command's module is imported only when the command is called, so that help is fast, and each command needs only the
packages that it uses.
"""

import os
import signal
import sys
import traceback
from collections.abc import Callable
from importlib.metadata import EntryPoint, version
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

from swarden.engine_under_test.errors import AccountingError, CheckpointError, ConfigError
from swarden.harness.commands.console import ERR, OUT, StandardOutputError
from swarden.harness.commands.help import with_plain_help, with_plain_params, with_single_options
from swarden.harness.core.errors import UsageError, cut
from swarden.harness.core.exit_codes import STOPPING, ExitCode
from swarden.harness.core.imports import importing, one_line, place_of

FAILED = (ExitCode.NONDETERMINISTIC, ExitCode.VIOLATED, ExitCode.STUCK)  # the verdicts of an interrupted command
COMMANDS = {  # by their use, in the order in which a new user needs them
    "Find bugs": {
        "demo": "Find, shrink, replay and show a planted leak of a small engine, in seconds.",
        "fuzz": "Drive an engine with random traffic; check every step; shrink and save the failures.",
        "nightly": "Fuzz every night, with an archive of what the nights before have found.",
        "gate": "Judge a change of an engine: random traffic on its head, its failures replayed on its base.",
        "attach": "Run a server of an engine with the strict memory check attached to its scheduler.",
        "trace": "Serve a production trace of requests; check every step; stop at the first violation.",
    },
    "Look at a finding": {
        "show": "Print an op-log as a table of operations and steps, or the state after one step.",
        "replay": "Run op-logs again; the verdict of each is FIXED, FAILED, CHANGED, FLAKY or ERROR.",
        "shrink": "Make a failing op-log smaller.",
        "repro": "Write a finding as a program that needs only the engine's package, or as an issue.",
        "bisect": "The first version or commit of an engine that an op-log fails on, and the first that passes again.",
        "backtest": "How many bugs of past releases a search finds before the next release fixes them.",
        "archive": "The findings of the nights: list, show, quarantine, verify, import or draft them.",
        "mute": "Put a known bug or a finding aside until a date, for a reason.",
        "report": "Write one page about an archive of nights or the findings of a campaign.",
    },
    "Engines and known bugs": {
        "engines": "List the installed engines with their versions.",
        "findings": "The bugs that swarden knows in releases of engines: list them, or print the page of one.",
        "check": "What the target of an engine lacks, gets wrong, and would gain from further data.",
        "mutants": "The catalogue of mutants: list them, plant and find them, or print which law detects which.",
    },
    "swarden's own engine": {
        "generate": "Run a checkpoint on swarden's own engine.",
        "serve": "Serve a checkpoint with swarden's own engine, in the APIs of vLLM, SGLang and llama.cpp.",
        "bench": "What a checked step of an engine costs, by its parts, and what the strict check costs.",
    },
}


class Commands(TyperGroup):
    """The commands by name and help text; the module of a command is imported when the command is called."""

    def get_params(self, ctx: Any) -> list[Any]:
        return list(with_plain_params(super().get_params(ctx)))

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        name, _, rest = super().resolve_command(ctx, args)
        return name, None if name is None else with_plain_help(get_command(_loaded(name)), ctx), rest


app = typer.Typer(
    cls=Commands,
    help="Finds KV-memory bugs in serving engines: random traffic, invariants after every step, small repros.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
for group, commands in COMMANDS.items():
    for command, help_text in commands.items():
        app.command(command, help=help_text, rich_help_panel=group)(lambda: None)


def main() -> None:
    """Run the command that the arguments name; SIGINT and SIGTERM interrupt it until it has its exit code."""
    received: list[int] = []

    def interrupt(number: int, _frame: object) -> None:
        received.append(number)
        raise KeyboardInterrupt

    for number in STOPPING:  # SIGINT too: a shell's background job has it ignored
        signal.signal(number, interrupt)
    code = run(start)
    if received and code not in FAILED:  # an import can drop a KeyboardInterrupt, or raise ImportError in its place
        code = ExitCode.INTERRUPTED
    for number in STOPPING:  # they are ignored while the interpreter ends, too
        signal.signal(number, signal.SIG_IGN)
    sys.exit(code)


def start() -> int | None:
    """Run the command, with the options that the project in this folder has for it."""
    if Path("pyproject.toml").is_file():
        with_project = EntryPoint("project", "swarden.harness.commands.project:with_project", "").load()
        sys.argv[1:] = with_project(sys.argv[1:])  # from there a command prints what runs it again
    code: int | None = app(standalone_mode=False)
    return code


def _print_version(is_asked: bool) -> None:
    if is_asked:
        OUT.print(f"swarden {version('swarden')}")
        raise typer.Exit


@app.callback()
def _options(
    _version: Annotated[
        bool, typer.Option("--version", help="print the version", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Options without a command."""


def _loaded(name: str) -> typer.Typer:
    """The command with that name; raises UsageError if a package that it needs is missing."""
    with importing(f"the command {name}"):
        loaded: typer.Typer | Callable[..., None] = EntryPoint(
            name, f"swarden.harness.commands.{name}:{name}", ""
        ).load()
    if not isinstance(loaded, typer.Typer):
        alone = typer.Typer(add_completion=False)
        alone.command(name)(loaded)
        loaded = alone
    for registered in loaded.registered_commands:
        assert registered.callback is not None, f"{name}: a command is a function"
        registered.callback = with_single_options(registered.callback)
    return loaded


def run(command: Callable[[], int | None]) -> int:
    """The exit code of a command. A mistake of the user and an operating error are one line on standard error."""
    try:
        code = command() or ExitCode.CLEAN
        OUT.file.flush()
    except SystemExit as end:
        code = _end_of(end)
    except StandardOutputError as error:
        code = _stop_writing(error.reason)
    except (UsageError, ConfigError, CheckpointError) as error:
        code = _misuse(str(error))
    except typer.TyperException as error:
        code = _misuse(error.format_message())
    except OSError as error:
        place = f"{error.filename}: " if error.filename is not None else ""
        code = _misuse(f"{place}{error.strerror or error}")
    except AccountingError as error:  # of the strict check, whose text is its story, or of the engine's accounting
        ERR.print(str(error))
        code = ExitCode.VIOLATED
    except (typer.Abort, KeyboardInterrupt):
        ERR.print("swarden: interrupted")
        code = ExitCode.INTERRUPTED
    except BaseException:  # Python's own exit code for it, 1, means a violation here
        ERR.print(traceback.format_exc(), end="", soft_wrap=True)
        ERR.print("swarden: internal error; please report it")
        code = ExitCode.FAULT
    return code


def _end_of(end: SystemExit) -> ExitCode:
    """The exit code where a package ended the process: the shell's completion, rich at a closed pipe, or an engine."""
    frames = [frame for frame, _ in traceback.walk_tb(end.__traceback__)]
    if frames[-1].f_globals["__name__"].split(".")[0] not in ("typer", "rich"):
        return _misuse(f"{one_line(end)}{place_of(end)}; code of an engine may not end the process, repair its package")
    return _stop_writing(BrokenPipeError()) if end.code else ExitCode.CLEAN


def _misuse(what: str) -> ExitCode:
    """Print a mistake of the user; `what` is empty if the help was printed instead."""
    if what:
        text = cut(" ".join(line.strip() for line in what.splitlines()))
        ERR.print(f"swarden: {text}", soft_wrap=True)  # it can have a command to copy
    return ExitCode.MISUSE


def _stop_writing(reason: OSError) -> ExitCode:
    """Print why standard output cannot be written, unless its reader has closed it.

    Standard output is redirected to the null device, so that the interpreter can flush it at its end.
    """
    if not isinstance(reason, BrokenPipeError):
        ERR.print(f"swarden: standard output cannot be written: {reason.strerror}")
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return ExitCode.MISUSE


if __name__ == "__main__":
    main()
