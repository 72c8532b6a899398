"""The formats of production traces, by name."""

from pathlib import Path
from typing import Protocol

from swarden.harness.core.errors import UsageError
from swarden.harness.traces.mooncake import read_mooncake
from swarden.harness.traces.request import TraceRequest


class TraceReader(Protocol):
    """A function that reads and validates the first `limit` requests, with every length divided by `scale`."""

    def __call__(self, path: Path, *, limit: int | None, scale: int) -> list[TraceRequest]: ...


FORMATS: dict[str, TraceReader] = {"mooncake": read_mooncake}


def reader_of(name: str) -> TraceReader:
    """The reader of a format; a UsageError names the known formats."""
    if name not in FORMATS:
        raise UsageError(f"format {name!r} is not known; want one of {', '.join(sorted(FORMATS))}")
    return FORMATS[name]
