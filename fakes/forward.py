"""The stand-in for the model on its GPU: reads and writes tags where the model would KV."""

from array import array
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple, Protocol

import torch

from engine_under_test.ports import ForwardBatch, ForwardFailed, PageSpan, PoolPages

RUBBISH = -1  # no tag is negative


class TagRead(NamedTuple):
    """The pass read `tags` in `pool` for the positions of a request from `start` on."""

    launch: int
    request_id: int
    pool: str
    start: int
    tags: "array[int]"


class TagWritten(NamedTuple):
    """The pass wrote positions [start, end) of a request in `pool`, on `pages`."""

    launch: int
    request_id: int
    pool: str
    start: int
    end: int
    pages: tuple[int, ...]


class TagModel(Protocol):
    """How tags follow from tokens, and tokens from tags."""

    def namespace_tag(self, namespace: int) -> int: ...

    def next_tag(self, previous: int, token: int) -> int: ...

    def sampled_token(self, sums: Sequence[int]) -> int:
        """The next token from the sums of all tags that were read, a sum per pool."""


class FaultPlan(Protocol):
    """Says at a crossing whether an armed fault comes true."""

    def fires(self, fault: str) -> bool: ...


class FakeForward:
    """Writes to each slot a hash of the prefix that ends there, and samples from all tags that it read.

    The hash of a position follows from the one that is stored before it, so a wrong page shows in
    what is written, in what is read and in the output.  A pass runs when it is collected, as late as
    may be, so that whatever was taken from it too early shows.  It permits these faults:

    forward.fails  the pass leaves rubbish where it should have written, and collecting it raises ForwardFailed
    forward.late   the pass is not done when it is asked for, and is asked again
    """

    def __init__(
        self,
        model: TagModel,
        note: Callable[[TagRead | TagWritten], None] | None = None,
        plan: FaultPlan | None = None,
    ) -> None:
        self._model = model
        self._note = note
        self._plan = plan
        self._batches: dict[int, ForwardBatch] = {}
        self._lost: dict[int, set[int]] = {}  # by launch, the entries that would read what a failed pass left
        self._sampled: dict[int, int] = {}  # the newest token by request, of the pass that ran last

    def launch(self, batch: ForwardBatch) -> None:
        self._batches[batch.launch] = batch

    def collect(self, launch: int) -> list[int | None] | None:
        if self._plan and self._plan.fires("forward.late"):
            return None
        launched, lost = self._batches.pop(launch), self._lost.pop(launch, set())
        batch = _without(launched, lost) if lost else launched
        if self._plan and self._plan.fires("forward.fails"):
            self._spoil(batch)
            raise ForwardFailed(f"launch {launch}: the device gave up")
        self._sampled = self._run(batch)
        return [self._sampled.get(entry.request_id) for entry in launched.entries]

    def _run(self, batch: ForwardBatch) -> dict[int, int]:
        """Write, read and sample; the next tokens by request."""
        pages_by_pool = [pool.pages.tolist() for pool in batch.pools]
        tags = self._new_tags(batch, pages_by_pool[0])
        sums = []
        for pool, pages in zip(batch.pools, pages_by_pool, strict=True):
            _write(batch, pool, pages, tags)
            if self._note:
                self._note_written(batch, pool, pages)
            sums.append(self._read(batch, pool))
        return {
            entry.request_id: self._model.sampled_token([of_pool[index] for of_pool in sums])
            for index, entry in enumerate(batch.entries)
            if entry.samples
        }

    def _spoil(self, batch: ForwardBatch) -> None:
        """Leave no trace of what was there; who was launched on top of it has nothing to go on from either."""
        for index, pool in enumerate(batch.pools):
            pages = pool.pages.tolist()
            computed = sum(entry.end - entry.start for entry in batch.entries)
            _write(batch, pool, pages, array("q", [RUBBISH] * computed))
            spoiled = {page for of_entry in _written_pages(batch, pool, pages) for page in of_entry}
            for launch, later in self._batches.items():
                self._lost.setdefault(launch, set()).update(_readers(later.pools[index], spoiled))

    def _new_tags(self, batch: ForwardBatch, pages: Sequence[int]) -> "array[int]":
        """The tag of every position that is computed, chained to the one that the first pool has before it."""
        pool, page_size = batch.pools[0], batch.page_size
        before = [
            _slot(pages, span, max(entry.start - 1, 0), page_size)
            for entry, span in zip(batch.entries, pool.spans, strict=True)
        ]
        stored = pool.kv.view(-1).index_select(0, torch.tensor(before, dtype=torch.int64)).tolist()
        next_tag, tags = self._model.next_tag, array("q")
        for entry, tag in zip(batch.entries, stored, strict=True):
            if not entry.start:
                tag = self._model.namespace_tag(entry.namespace)
            known = [*entry.tokens, self._sampled[entry.request_id]] if entry.follows else entry.tokens
            for token in known:
                tag = next_tag(tag, token)
                tags.append(tag)
        return tags

    def _note_written(self, batch: ForwardBatch, pool: PoolPages, pages: list[int]) -> None:
        assert self._note, "nobody listens"
        for entry, written in zip(batch.entries, _written_pages(batch, pool, pages), strict=True):
            self._note(TagWritten(batch.launch, entry.request_id, pool.name, entry.start, entry.end, written))

    def _read(self, batch: ForwardBatch, pool: PoolPages) -> list[int]:
        """The sum of the tags that each entry's last position sees; all reads in one gather."""
        page_size, count = batch.page_size, len(pool.pages)
        tags, running = array("q", bytes(8 * count * page_size)), array("q", bytes(8 * (count * page_size + 1)))
        gathered = _tensor(tags)
        torch.index_select(pool.kv, 0, pool.pages, out=gathered.view(count, page_size))
        torch.cumsum(gathered, 0, out=_tensor(running)[1:])
        totals = []
        for entry, span in zip(batch.entries, pool.spans, strict=True):
            base = span.begin * page_size - span.first_position
            seen = 0 if pool.window is None else max(0, entry.end - pool.window)
            totals.append(running[base + entry.end] - running[base + seen])
            if self._note:
                start = 0 if pool.window is None else max(0, entry.start + 1 - pool.window)
                read = tags[base + start : base + entry.end]
                self._note(TagRead(batch.launch, entry.request_id, pool.name, start, read))
        return totals


def _written_pages(batch: ForwardBatch, pool: PoolPages, pages: Sequence[int]) -> list[tuple[int, ...]]:
    """Per entry the pages that it writes to, in order."""
    written = []
    for entry, span in zip(batch.entries, pool.spans, strict=True):
        first = span.begin + (entry.start - span.first_position) // batch.page_size
        written.append(tuple(pages[first : span.begin + span.num_pages]))
    return written


def _readers(pool: PoolPages, spoiled: set[int]) -> list[int]:
    """Which entries have one of these pages."""
    pages = pool.pages.tolist()
    return [
        index
        for index, span in enumerate(pool.spans)
        if not spoiled.isdisjoint(pages[span.begin : span.begin + span.num_pages])
    ]


def _without(batch: ForwardBatch, lost: set[int]) -> ForwardBatch:
    """A batch less the entries that are lost; their pages are left in the list, unread."""
    kept = [index for index in range(len(batch.entries)) if index not in lost]
    pools = [replace(pool, spans=[pool.spans[index] for index in kept]) for pool in batch.pools]
    return replace(batch, entries=[batch.entries[index] for index in kept], pools=pools)


def _write(batch: ForwardBatch, pool: PoolPages, pages: list[int], tags: "array[int]") -> None:
    """Write the tags of all positions that are computed, entry by entry."""
    page_size, slots = batch.page_size, array("q")
    for entry, span in zip(batch.entries, pool.spans, strict=True):
        for begin in (entry.start, *range(entry.start - entry.start % page_size + page_size, entry.end, page_size)):
            slot = _slot(pages, span, begin, page_size)
            slots.extend(range(slot, slot + min(page_size - begin % page_size, entry.end - begin)))
    if slots:
        pool.kv.view(-1).index_copy_(0, _tensor(slots), _tensor(tags))


def _slot(pages: Sequence[int], span: PageSpan, position: int, page_size: int) -> int:
    """The slot of a request's position."""
    page, offset = divmod(position - span.first_position, page_size)
    return pages[span.begin + page] * page_size + offset


def _tensor(values: "array[int]") -> torch.Tensor:
    """The same memory as a tensor."""
    return torch.frombuffer(values, dtype=torch.int64)
