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
            for below, one in getattr(command, "commands", {}).items():
                if not one.hidden:
                    yield from command_part(f"swarden {name} {below}", one)


def command_part(name: str, command: Any) -> Iterator[str]:
    """The heading of a command, its help, and a table for each group of its options."""
    shown = [one for one in command.params if not getattr(one, "hidden", False)]
    arguments = [one for one in shown if isinstance(one, TyperArgument)]
    yield f"#### {' '.join([name, *(word_of(one) for one in arguments)])}\n"
    yield from (wrapped(text) for text in (command.help or "").split("\n\n"))
    yield from (wrapped(f"- `{word_of(one)}`: {one.help}", "  ") for one in arguments if one.help)
    panels = defaultdict(list)
    for one in shown:
        if not isinstance(one, TyperArgument):
            panels[one.rich_help_panel or "Options"].append(one)
    for panel, options in panels.items():
        rows = [f"| `{option_text(one)}` | {cell(one)} |" for one in options]
        yield "\n".join([f"| {panel} | |", "| --- | --- |", *rows]) + "\n"


def word_of(argument: Any) -> str:
    word = str(argument.metavar or argument.name.upper())
    return word + "…" * (argument.nargs < 0 and not word.endswith("…"))


def option_text(option: Any) -> str:
    names = ", ".join(sorted((*option.opts, *option.secondary_opts), key=len, reverse=True))
    return f"{names} {option.metavar or ''}".strip().replace("|", "\\|")


def cell(option: Any) -> str:
    """The help of an option with its default, where it has one that help shows."""
    text = re.sub(r"\s+", " ", option.help or "").replace("|", "\\|")
    is_shown = option.show_default and option.default not in (None, False, (), [], "") and not callable(option.default)
    return f"{text} (default: `{option.default}`)" if is_shown else text
