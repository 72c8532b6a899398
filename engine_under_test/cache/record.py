"""A KV record: cursors and pages of one row, a value that moves whole from owner to owner."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from engine_under_test.cache.locks import LockReceipt
from engine_under_test.pools.request_table import RequestTable
from engine_under_test.units import Owner, align_up


@dataclass(slots=True)
class KVRecord:
    """The KV of one row of the request table.

        0 ........ protected_len ........ committed_len ...... launched_len .... allocated_len
        |the tree's, under receipt|private, KV written|private, in flight|private, unused    |
                                  |..windowed pages freed.|frontier

    `handles` name a page per `page_size` tokens of [0, allocated_len).  The tree owns the pages before protected_len;
    the owner of the record must free the rest.  Passes up to `last_launch` read and write these pages.  Tokens in
    flight are committed when their pass has been processed.  `row` is 0 while a session keeps the record.
    """

    owner: Owner
    row: int
    receipt: LockReceipt
    protected_len: int
    committed_len: int
    launched_len: int
    allocated_len: int
    frontier: int = 0
    last_launch: int = 0
    handles: list[int] = field(default_factory=list)

    def write(self, table: RequestTable, first: int, handles: Sequence[int]) -> None:
        """Set handles from page index `first` on, here and in the row that the forward reads."""
        self.handles[first : first + len(handles)] = handles
        table.write(self.row, first, handles)

    def private_handles(self, page_size: int) -> tuple[list[int], list[int]]:
        """The private handles: those whose windowed pages are freed, and those with pages in all pools."""
        first, end = self.protected_len // page_size, align_up(self.allocated_len, page_size) // page_size
        border = min(max(self.frontier // page_size, first), end)
        return self.handles[first:border], self.handles[border:end]
