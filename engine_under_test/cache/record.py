"""A KV record: cursors and pages of one row, a value that moves whole from owner to owner."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, pairwise

from swarden.engine_under_test.cache.locks import LockReceipt
from swarden.engine_under_test.components import Component
from swarden.engine_under_test.pools.memory import RequestTable
from swarden.engine_under_test.units import align_up, borders, overlap
from swarden.invariants.events import Owner


@dataclass(slots=True)
class KVRecord:
    """The KV of one row of the request table.

        0 ........ protected_len ........ committed_len ...... launched_len .... allocated_len
        |the tree's, under receipt|private, KV written|private, in flight|private, unused    |
                                  |..pages in a pool freed|frontier in that pool  |hole|

    `handles` name a page per `page_size` tokens of [0, allocated_len).  The tree owns the pages before protected_len;
    the owner of the record must free the rest, in each pool from its frontier on, but for `holes`, in which no page was
    taken.  Passes up to `last_launch` read and write these pages; the last position that any of them wrote is before
    `written_len`.  Tokens in flight are committed when their pass has been processed.  `row` is 0 while a session keeps
    the record.
    """

    owner: Owner
    row: int
    receipt: LockReceipt
    protected_len: int
    committed_len: int
    launched_len: int
    allocated_len: int
    frontiers: dict[str, int] = field(default_factory=dict)
    last_launch: int = 0
    handles: list[int] = field(default_factory=list)
    holes: dict[str, list[range]] = field(default_factory=dict)
    written_len: int = 0

    def write(self, table: RequestTable, first: int, handles: Sequence[int]) -> None:
        """Set handles from page index `first` on, here and in the row that the forward reads."""
        self.handles[first : first + len(handles)] = handles
        table.write(self.row, first, handles)

    def frontier(self, pool: str) -> int:
        """The position below which the record has given up its pages in a pool."""
        return self.frontiers.get(pool, 0)

    @property
    def absent(self) -> Mapping[str, Sequence[range]]:
        """By pool, the spans in which the record has no pages."""
        absent = {pool: [range(frontier)] for pool, frontier in self.frontiers.items()}
        for pool, holes in self.holes.items():
            absent.setdefault(pool, []).extend(holes)
        return absent

    @property
    def highest_frontier(self) -> int:
        return max(self.frontiers.values(), default=0)

    def can_continue(self, length: int, pools: Sequence[Component]) -> bool:
        """Does the record still have every page that the token at `length` reads?"""
        return all(
            self.frontier(pool.name) <= (first := pool.read_from(length))
            and pool.retains(length, written_len=self.written_len)
            and not overlap(self.holes.get(pool.name, ()), max(first, self.protected_len), length)
            for pool in pools
        )

    def held(self, pool: str, first: int, end: int, *, page_size: int) -> list[int]:
        """The handles of the page indices [first, end) that have a page in a pool, from its frontier on."""
        handles, holes = self.handles[first:end], self.holes.get(pool)
        if not holes:
            return handles
        starts = range(first * page_size, end * page_size, page_size)
        pages = zip(handles, starts, strict=True)
        return [page for page, start in pages if not overlap(holes, start, start + page_size)]

    def skip(self, pool: str, indices: Sequence[int], first: int, stop: int, *, page_size: int) -> None:
        """Record holes in a pool: of the page indices [first, stop), all but `indices`, which are in order."""
        for before, index in pairwise([first - 1, *indices, stop]):
            assert before < index, f"{pool}: page index {index} after {before} of [{first}, {stop})"
            if index > before + 1:
                self.holes.setdefault(pool, []).append(range((before + 1) * page_size, index * page_size))

    def forget_holes(self, start: int, end: int) -> None:
        """Forget the parts of holes outside of [start, end), where the record has no pages of its own."""
        for pool, holes in self.holes.items():
            parts = [range(max(hole.start, start), min(hole.stop, end)) for hole in holes]
            self.holes[pool] = [part for part in parts if part]

    def private_parts(self, page_size: int) -> Iterator[tuple[list[int], list[str]]]:
        """The private handles in order, each part with the pools in which it has no pages."""
        return self.parts(self.protected_len, align_up(self.allocated_len, page_size), page_size=page_size)

    def parts(self, start: int, end: int, *, page_size: int) -> Iterator[tuple[list[int], list[str]]]:
        """The handles of [start, end) in order, each part with the pools in which it has no pages."""
        absent = self.absent
        for begin, stop in pairwise(borders(chain.from_iterable(absent.values()), start, end)):
            lacks = [pool for pool, spans in absent.items() if overlap(spans, begin, stop)]
            yield self.handles[begin // page_size : stop // page_size], lacks
