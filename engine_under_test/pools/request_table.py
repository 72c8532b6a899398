"""The request table: per row the handles of one request's pages, as the forward reads them."""

from array import array
from collections.abc import Sequence

from swarden.engine_under_test.pools.ledger import Ledger


class RequestTable:
    """A line of page handles per row, by position // page_size.

    The rows are a ledger's units; row 0 is padding.  A freed row is not cleared: its entries beyond the pages of the
    owner are stale and must not be read.
    """

    def __init__(self, rows: Ledger, *, width: int) -> None:
        self.rows = rows
        self.width = width  # pages
        self._handles = array("q", [0]) * (width * (rows.capacity + 1))

    def write(self, row: int, first: int, handles: Sequence[int]) -> None:
        """Write handles from page index `first` on."""
        assert first + len(handles) <= self.width, (
            f"row {row}: {first} + {len(handles)} pages do not fit in a width of {self.width}"
        )
        begin = row * self.width + first
        self._handles[begin : begin + len(handles)] = array("q", handles)

    def read(self, row: int, first: int, end: int) -> "array[int]":
        """The handles of page indices [first, end)."""
        return self._handles[row * self.width + first : row * self.width + end]
