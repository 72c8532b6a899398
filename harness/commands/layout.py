"""The layout of a story: colours on a terminal, plain text elsewhere, wrapped to the number of columns."""

import os
from collections.abc import Iterable
from textwrap import wrap

from rich.console import Console
from rich.text import Text

from swarden.harness.core.printable import printable
from swarden.harness.report.story import StoryLine, StoryPart

HANGING_INDENT = 4
VERBATIM = (StoryPart.VERDICT, StoryPart.COMMAND)  # never broken, because users copy these lines
STYLES = {
    StoryPart.VERDICT: "bold",
    StoryPart.HEADING: "cyan",
    StoryPart.CLAIM: "bold red",
    StoryPart.EVIDENCE: "",
    StoryPart.HISTORY: "dim",
    StoryPart.EQUATION: "yellow",
    StoryPart.COMMAND: "bold",
}


def print_lines(console: Console, lines: Iterable[StoryLine]) -> None:
    """Print lines, broken where the columns end."""
    columns = columns_of(console)
    for line in lines:
        text, indent = printable(line.text), " " * line.indent
        following = indent + " " * HANGING_INDENT
        broken = wrap(text, columns, initial_indent=indent, subsequent_indent=following, break_on_hyphens=False)
        for shown in [indent + text] if line.part in VERBATIM else broken:
            console.print(Text(shown, style=STYLES[line.part]))


def columns_of(console: Console) -> int:
    """The width of the console; if it is not a terminal, the variable COLUMNS can set the width."""
    width = os.environ.get("COLUMNS", "")
    return int(width) if width.isdecimal() and int(width) and not console.is_terminal else console.width
