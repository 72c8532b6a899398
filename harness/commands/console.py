"""The output of commands: results on standard output, progress and remarks on standard error."""

import io
import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import IO, Any, cast

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

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
            return sys.stdout.write(text) if sys.stdout else len(text)

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


STANDARD_OUTPUT = StandardOutput()
OUT = Console(
    file=cast(IO[str], STANDARD_OUTPUT),
    highlight=False,
    soft_wrap=True,
    width=None if STANDARD_OUTPUT.isatty() else PIPED_WIDTH,
)
ERR = Console(stderr=True, highlight=False, soft_wrap=True)


def print_json(result: Mapping[str, Any]) -> None:
    """Print one JSON object and nothing else."""
    OUT.print(json.dumps(result, indent=2), markup=False)


def progress() -> Progress:
    """A live line on standard error; nothing is printed if that is not a terminal."""
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    return Progress(*columns, console=ERR, transient=True, disable=not ERR.is_terminal)
