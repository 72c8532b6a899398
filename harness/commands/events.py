"""The events of a command, as JSON lines in a file."""

from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from io import FileIO
from pathlib import Path
from typing import Annotated, Any

import msgspec

from swarden.harness.commands.console import ERR
from swarden.harness.commands.help import output_option
from swarden.harness.core.driver import Driver
from swarden.harness.core.errors import UsageError
from swarden.harness.core.files import opened
from swarden.invariants.transition import Transition

EventsOption = Annotated[Path | None, output_option("--events", help="write events to this file, one JSON line each")]


class EventLines:
    """Writes events as JSON lines at once; writes nothing without a file, or after a write error."""

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
            ERR.print(f"--events: no further lines: {error.strerror}")
            self._file = None

    def write_transition(self, driver: Driver, change: Transition) -> None:
        """Write each event of a transition, with its op, its engine and the engine's step."""
        where = {"op": len(driver.ops), "engine": driver.acting_system, "step": change.after.step}
        for event in change.events:
            fields = {name: _owner(value) for name, value in event._asdict().items()}
            self.write(type(event).__name__, **where, **fields)


@contextmanager
def event_lines(path: Path | None) -> Iterator[EventLines]:
    """Open the file for the body; an existing file is truncated.  Raises UsageError if it cannot be written."""
    if path is None:
        yield EventLines(None)
        return
    try:
        file = opened(path, "wb")
    except OSError as error:
        raise UsageError(f"--events: {path} cannot be written: {error.strerror}") from error
    with file:
        yield EventLines(file)


def _owner(value: object) -> object:
    """An owner as text; in an event only owners are named tuples, of a type that depends on the engine."""
    return str(value) if hasattr(value, "_fields") else value


def _plain(value: object) -> object:
    """An array, such as the tags of a read, as a list."""
    if isinstance(value, array):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} in an event")
