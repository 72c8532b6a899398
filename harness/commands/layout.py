"""The layout of a story: colours on a terminal, plain text elsewhere, wrapped to the number of columns."""

import os
from collections.abc import Iterable

from rich.console import Console
from rich.text import Text

from swarden.harness.commands.console import broken
from swarden.harness.core.printable import printable
from swarden.harness.report.story import StoryLine, StoryPart

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
        text = " " * line.indent + printable(line.text)
        for shown in [text] if line.part in VERBATIM else broken(text, columns):
            console.print(Text(shown, style=STYLES[line.part]))


def columns_of(console: Console) -> int:
    """The width of the console; if it is not a terminal, the variable COLUMNS can set the width."""
    width = os.environ.get("COLUMNS", "")
    return int(width) if width.isdecimal() and int(width) and not console.is_terminal else console.width
