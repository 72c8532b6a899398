"""From planned entries to one forward pass: which pages each pool's layers read and write."""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch

from engine_under_test.cache.record import KVRecord
from engine_under_test.components import Component
from engine_under_test.pools.memory import KVMemory
from engine_under_test.ports import ForwardBatch, ForwardEntry, PageSpan, PoolPages
from engine_under_test.request import Request
from engine_under_test.units import num_pages


class Running(NamedTuple):
    """A request and the KV that it computes in."""

    request: Request
    record: KVRecord


class Loading(NamedTuple):
    """A request that waits until the copy job `job` has ended; 0: the request does not wait."""

    request: Request
    record: KVRecord
    job: int


@dataclass(frozen=True, slots=True, eq=False)
class Entry:
    """The tokens [start, end) of a request, computed in one pass.

    `completes_input` is false for a chunk that is followed by more of the input.  `decodes` is true when the input was
    computed before.  `drafts` are computed behind `end`, in the lookahead pages of the record; they are verified when
    the pass has completed.
    """

    request: Request
    record: KVRecord
    start: int
    end: int
    completes_input: bool
    decodes: bool = False
    drafts: tuple[int, ...] = ()

    @property
    def reach(self) -> int:
        """The end of the positions that are written."""
        return self.end + len(self.drafts)


def forward_batch(memory: KVMemory, launch: int, entries: Sequence[Entry]) -> ForwardBatch:
    """The pass that computes `entries`."""
    forward_entries = [_forward_entry(entry) for entry in entries]
    rows = [memory.table.read(entry.record.row, 0, num_pages(entry.reach, memory.page_size)) for entry in entries]
    pools = [_pool_pages(memory, pool, entries, rows) for pool in memory.pools]
    return ForwardBatch(launch, memory.page_size, forward_entries, pools)


def _forward_entry(entry: Entry) -> ForwardEntry:
    """The entry for the forward; a token that a pass in flight samples is not known yet."""
    request = entry.request
    unknown = max(0, entry.end - len(request.tokens))
    return ForwardEntry(
        request.id,
        request.namespace,
        [*request.tokens[entry.start : entry.end], *entry.drafts],
        entry.start,
        entry.reach,
        1 + len(entry.drafts) if entry.completes_input and request.tokens_left > unknown else 0,
        entry.record.last_launch if unknown else 0,
        request.sampling,
    )


def _pool_pages(memory: KVMemory, pool: Component, entries: Sequence[Entry], rows: Sequence["array[int]"]) -> PoolPages:
    """A span per entry, from the page of the first position that it reads to its last page."""
    handles, spans = array("q"), []
    page_size = memory.page_size
    for entry, row in zip(entries, rows, strict=True):
        first = pool.read_from(entry.start) // page_size
        spans.append(PageSpan(first * page_size, len(handles), len(row) - first))
        handles += row[first:] if first else row
    pages = array("q", memory.ledgers.pages_of(pool.name, handles))
    kv = memory.store.kv(pool.name)
    return PoolPages(pool.name, pool.window, kv, torch.frombuffer(pages, dtype=torch.int64), spans)
