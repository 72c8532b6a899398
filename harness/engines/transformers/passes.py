"""The part of a launched pass that belongs to one request."""

from collections.abc import Sequence
from typing import NamedTuple


class Entry(NamedTuple):
    """Positions [start, end) of a request, and its tables by group of layers.

    The result counts while the request has the same `run`: the number of its retractions.
    """

    request: int
    start: int
    end: int
    run: int
    tables: Sequence[Sequence[int]]
    drafts: Sequence[int] = ()

    @property
    def ids(self) -> tuple[int, int, int]:
        return self.request, self.start, self.end
