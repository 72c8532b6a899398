"""What happens while a command runs, as JSON lines in a file."""

import os
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Annotated, Any

import msgspec
import typer

from engine_under_test import units
from harness.commands.console import ERR
from harness.driver import Driver
from harness.errors import UsageError
from invariants import view
from invariants.base import Transition

EventsOption = Annotated[Path | None, typer.Option("--events", help="write what happens to this file, a line each")]


class EventLines:
    """Lines of JSON, each with an `event`, written as they come; nowhere without a file, or once it is full."""

    def __init__(self, file: IO[bytes] | None) -> None:
        self._file = file

    @property
    def is_on(self) -> bool:
        return self._file is not None

    def write(self, event: str, **fields: Any) -> None:
        if self._file is None:
            return
        line = msgspec.json.encode({"event": event, **fields}, enc_hook=_plain) + b"\n"
        try:
            os.write(self._file.fileno(), line)
        except OSError as error:
            ERR.print(f"--events: no further lines: {error.strerror}", markup=False)
            self._file = None

    def write_transition(self, driver: Driver, change: Transition) -> None:
        """Every event of a transition, with the op that it is of, its engine and that engine's step."""
        where = {"op": len(driver.ops), "engine": driver.moved, "step": change.after.step}
        for event in change.events:
            told = {name: _owner(value) for name, value in event._asdict().items()}
            self.write(type(event).__name__, **where, **told)


@contextmanager
def event_lines(path: Path | None) -> Iterator[EventLines]:
    """The file opened anew; raises UsageError where it cannot be written."""
    if path is None:
        yield EventLines(None)
        return
    try:
        with path.open("wb") as file:
            yield EventLines(file)
    except OSError as error:
        if error.filename != str(path):
            raise
        raise UsageError(f"--events: {path} cannot be written: {error.strerror}") from error


def _owner(value: object) -> object:
    return str(value) if isinstance(value, units.Owner | view.Owner) else value


def _plain(value: object) -> object:
    """The tags of a read."""
    if isinstance(value, array):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} in an event")
