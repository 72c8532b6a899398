"""The part of a launched pass that belongs to one request."""

from collections.abc import Sequence
from typing import Any, NamedTuple


class Entry(NamedTuple):
    """Positions [start, end) of a request, and its units by component; `seq` is the release's object for it.

    The result counts while the request has the same `run`: how often it has stopped running.
    """

    request: int
    start: int
    end: int
    run: int
    units: Sequence[Sequence[int]]
    seq: Any
    drafts: Sequence[int] = ()

    @property
    def ids(self) -> tuple[int, int, int]:
        return self.request, self.start, self.end
