"""Each command with its options in groups, as its help has them."""

import re
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from typer.core import TyperArgument, TyperGroup
from typer.main import get_command

from docs.make.pages import wrapped
from swarden.harness.cli import COMMANDS, app


def reference_text() -> str:
    """The reference behind docs/cli.md."""
    return "\n".join(reference())


def reference() -> Iterator[str]:
    main = get_command(app)
    assert isinstance(main, TyperGroup)
    for group, commands in COMMANDS.items():
        yield f"### {group}\n"
        for name in commands:
            _, command, _ = main.resolve_command(main.make_context("swarden", [name]), [name])
            yield from command_part(f"swarden {name}", command)
            for below, subcommand in getattr(command, "commands", {}).items():
                if not subcommand.hidden:
                    yield from command_part(f"swarden {name} {below}", subcommand)


def command_part(name: str, command: Any) -> Iterator[str]:
    """The heading of a command, its help, and a table for each group of its options."""
    shown = [param for param in command.params if not getattr(param, "hidden", False)]
    arguments = [param for param in shown if isinstance(param, TyperArgument)]
    yield f"#### {' '.join([name, *(word_of(argument) for argument in arguments)])}\n"
    yield from (wrapped(text) for text in (command.help or "").split("\n\n"))
    yield from (wrapped(f"- `{word_of(argument)}`: {argument.help}", "  ") for argument in arguments if argument.help)
    panels = defaultdict(list)
    for param in [param for param in shown if param not in arguments]:
        panels[param.rich_help_panel or "Options"].append(param)
    for panel, options in panels.items():
        rows = [f"| `{option_text(option)}` | {cell(option)} |" for option in options]
        yield "\n".join([f"| {panel} | |", "| --- | --- |", *rows]) + "\n"


def word_of(argument: Any) -> str:
    word = str(argument.metavar or argument.name.upper())
    return f"{word}…" if argument.nargs < 0 and not word.endswith("…") else word


def option_text(option: Any) -> str:
    names = ", ".join(sorted((*option.opts, *option.secondary_opts), key=len, reverse=True))
    return f"{names} {option.metavar or ''}".strip().replace("|", "\\|")


def cell(option: Any) -> str:
    """The help of an option with its default, where it has one that help shows."""
    text = re.sub(r"\s+", " ", option.help or "").replace("|", "\\|")
    is_shown = option.show_default and option.default not in (None, False, (), [], "") and not callable(option.default)
    return f"{text} (default: `{option.default}`)" if is_shown else text
