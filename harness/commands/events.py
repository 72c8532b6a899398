"""What happens while a command runs, as JSON lines in a file."""

from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from io import FileIO
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from harness.commands.console import ERR
from harness.core.driver import Driver
from harness.core.errors import UsageError
from invariants.transition import Transition

EventsOption = Annotated[Path | None, typer.Option("--events", help="write what happens to this file, a line each")]


class EventLines:
    """Lines of JSON, each with an `event`, written as they come; nowhere without a file, or once it is full."""

    def __init__(self, file: FileIO | None) -> None:
        self._file = file

    @property
    def is_on(self) -> bool:
        return self._file is not None

    def write(self, event: str, **fields: Any) -> None:
        if self._file is None:
            return
        line = msgspec.json.encode({"event": event, **fields}, enc_hook=_plain) + b"\n"
        try:
            self._file.write(line)
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
        file = path.open("wb", buffering=0)
    except OSError as error:
        raise UsageError(f"--events: {path} cannot be written: {error.strerror}") from error
    with file:
        yield EventLines(file)


def _owner(value: object) -> object:
    """An owner in words: of what an event has, only owners are named tuples, each engine's its own."""
    return str(value) if hasattr(value, "_fields") else value


def _plain(value: object) -> object:
    """The tags of a read."""
    if isinstance(value, array):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} in an event")
