"""The output of commands: results on standard output, progress and remarks on standard error.

Everything that is printed goes through `printable` here: texts of files, names of files and arguments can hold the
control sequences of a terminal.
"""

import io
import json
import sys
import webbrowser
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from textwrap import wrap
from typing import IO, Any, cast

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Column
from rich.text import Text

from swarden.harness.core.printable import ANSWER, LAYOUT, printable

HANGING_INDENT = 4  # of the second and further lines of a text
PIPED_WIDTH = 240  # columns of a table, if standard output is not a terminal


class StandardOutputError(Exception):
    """Standard output cannot be written, for `reason`. A plain OSError concerns another file."""

    def __init__(self, reason: OSError) -> None:
        super().__init__(reason)
        self.reason = reason


class StandardOutput(io.TextIOBase):
    """Writes to the current `sys.stdout`, or nowhere if there is none; raises StandardOutputError if a write fails."""

    @property
    def encoding(self) -> str:  # type: ignore[override]  # nothing sets it
        return sys.stdout.encoding if sys.stdout else "utf-8"

    def isatty(self) -> bool:
        return sys.stdout is not None and sys.stdout.isatty()

    def fileno(self) -> int:
        return sys.stdout.fileno()

    def write(self, text: str) -> int:
        with _as_standard_output_error():
            if not sys.stdout:
                return len(text)
            encoding = sys.stdout.encoding or "utf-8"  # none if it is a stream in memory
            return sys.stdout.write(text.encode(encoding, "backslashreplace").decode(encoding))

    def flush(self) -> None:
        with _as_standard_output_error():
            if sys.stdout:
                sys.stdout.flush()


@contextmanager
def _as_standard_output_error() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StandardOutputError(error) from error


def broken(line: str, columns: int) -> list[str]:
    """The line, broken between words where the columns end; a word that is longer than that stays whole."""
    text = line.lstrip(" ")
    indent = " " * (len(line) - len(text))
    return wrap(
        text,
        columns,
        initial_indent=indent,
        subsequent_indent=indent + " " * HANGING_INDENT,
        break_long_words=False,
        break_on_hyphens=False,
    )


class PrintableConsole(Console):
    """A console that prints each text, also each cell of a table, in printable form.

    On a terminal it breaks texts between words, unless a text is printed with `soft_wrap`, as a command to copy.
    """

    def print(self, *objects: Any, soft_wrap: bool | None = None, **options: Any) -> None:
        if self.file.isatty() and soft_wrap is None:
            objects = tuple(self._broken(item) if isinstance(item, str) else item for item in objects)
        super().print(*objects, soft_wrap=soft_wrap, **options)

    def _broken(self, text: str) -> Text:
        lines = printable(text, keep=LAYOUT).split("\n")
        return Text("\n".join(part for line in lines for part in broken(line, self.width) or [""]))

    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(printable(text, keep=LAYOUT), **options)


STANDARD_OUTPUT = StandardOutput()
OUT = PrintableConsole(
    file=cast(IO[str], STANDARD_OUTPUT),
    markup=False,
    highlight=False,
    soft_wrap=True,
    width=None if STANDARD_OUTPUT.isatty() else PIPED_WIDTH,
)
ERR = PrintableConsole(stderr=True, markup=False, highlight=False, soft_wrap=True)


def print_piece(text: str) -> None:
    """Print a piece of an answer at once, without layout: a console would break its lines."""
    OUT.file.write(printable(text, keep=ANSWER))
    OUT.file.flush()


def print_json(result: Mapping[str, Any]) -> None:
    """Print one JSON object and nothing else."""
    OUT.print(json.dumps(result, indent=2), soft_wrap=True)


def print_page(path: Path, *, is_opened: bool) -> None:
    """Print where a page was written, and open it in a browser if that is asked for."""
    OUT.print(f"written: {path}")
    if is_opened and not webbrowser.open(path.absolute().as_uri()):
        ERR.print("--open: no browser was found; open the page by hand")


def progress() -> Progress:
    """Live lines on standard error; nothing is printed if that is not a terminal."""
    columns = (SpinnerColumn(), TextColumn("{task.description}", table_column=Column()), TimeElapsedColumn())
    return Progress(*columns, console=ERR, transient=True, disable=not ERR.is_terminal)
