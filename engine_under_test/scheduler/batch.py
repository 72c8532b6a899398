"""From planned entries to one forward pass: which pages each pool's layers read and write."""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch

from swarden.engine_under_test.cache.record import KVRecord
from swarden.engine_under_test.components import Component
from swarden.engine_under_test.pools.memory import KVMemory
from swarden.engine_under_test.ports import ForwardBatch, ForwardEntry, PageSpan, PoolPages, StateSlots
from swarden.engine_under_test.request import Request
from swarden.engine_under_test.units import align_up, num_pages


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
    """The tokens [start, end) of a request, computed in one pass."""

    request: Request
    record: KVRecord
    start: int
    end: int
    completes_input: bool  # false: more of the input follows this chunk
    decodes: bool = False  # the input was computed before
    drafts: tuple[int, ...] = ()  # computed behind `end`, in the lookahead pages, and verified after the pass

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
    states = [state_slots(pool, pages, *pair) for pair in zip(entries, spans, strict=True)] if pool.has_states else ()
    return PoolPages(pool.name, pool.window, kv, torch.frombuffer(pages, dtype=torch.int64), spans, states, pool.slots)


def state_slots(pool: Component, pages: Sequence[int], entry: Entry, span: PageSpan) -> StateSlots:
    """The slots of an entry's states: the state after a position stands in its page, at its place modulo the slots.

    |... first_position ...start - 1|start .... page end| ... no page ... |page end .. last positions|end
                             ^ read              ^ stored                      ^ stored  ^ ^ ^ stored
    """

    def slot(position: int) -> int:
        page = pages[span.begin + (position - span.first_position) // pool.page_size]
        return page * pool.slots + position % pool.slots if page else 0

    start, reach, page_size = entry.start, entry.reach, pool.page_size
    page_ends = range(align_up(start + 1, page_size) - 1, reach, page_size)
    newest = range(max(start, reach - pool.kept_states), reach)
    slots = {position: slot(position) for position in sorted({*page_ends, *newest})}
    kept = {position: place for position, place in slots.items() if place or position >= entry.end - 1}
    return StateSlots(slot(start - 1) if start else 0, [*kept], [*kept.values()])
