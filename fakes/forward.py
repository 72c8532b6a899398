"""The stand-in for the model on its GPU: reads and writes tags where the model would KV."""

from array import array
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import torch

from engine_under_test.ports import ForwardBatch, PageSpan, PoolPages


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


class FakeForward:
    """Writes to each slot a hash of the prefix that ends there, and samples from all tags that it read.

    The hash of a position follows from the one that is stored before it, so a wrong page shows in
    what is written, in what is read and in the output.  It permits no fault yet.
    """

    def __init__(self, model: TagModel, note: Callable[[TagRead | TagWritten], None] | None = None) -> None:
        self._model = model
        self._note = note
        self._sampled: dict[int, list[int | None]] = {}

    def launch(self, batch: ForwardBatch) -> None:
        pages_by_pool = [pool.pages.tolist() for pool in batch.pools]
        tags = self._new_tags(batch, pages_by_pool[0])
        sums = []
        for pool, pages in zip(batch.pools, pages_by_pool, strict=True):
            self._write(batch, pool, pages, tags)
            sums.append(self._read(batch, pool))
        self._sampled[batch.launch] = [
            self._model.sampled_token([of_pool[index] for of_pool in sums]) if entry.samples else None
            for index, entry in enumerate(batch.entries)
        ]

    def collect(self, launch: int) -> list[int | None]:
        return self._sampled.pop(launch)

    def _new_tags(self, batch: ForwardBatch, pages: Sequence[int]) -> "array[int]":
        """The tag of every position that is computed, chained to the one that the first pool has before it."""
        pool, page_size = batch.pools[0], batch.page_size
        before = [
            _slot(pages, span, max(entry.start - 1, 0), page_size)
            for entry, span in zip(batch.entries, pool.spans, strict=True)
        ]
        stored = pool.kv.view(-1).index_select(0, torch.tensor(before)).tolist()
        next_tag, tags = self._model.next_tag, array("q")
        for entry, tag in zip(batch.entries, stored, strict=True):
            if not entry.start:
                tag = self._model.namespace_tag(entry.namespace)
            for token in entry.tokens:
                tag = next_tag(tag, token)
                tags.append(tag)
        return tags

    def _write(self, batch: ForwardBatch, pool: PoolPages, pages: list[int], tags: "array[int]") -> None:
        page_size, slots = batch.page_size, array("q")
        for entry, span in zip(batch.entries, pool.spans, strict=True):
            for begin in (entry.start, *range(entry.start - entry.start % page_size + page_size, entry.end, page_size)):
                slot = _slot(pages, span, begin, page_size)
                slots.extend(range(slot, slot + min(page_size - begin % page_size, entry.end - begin)))
            if self._note:
                first = span.begin + (entry.start - span.first_position) // page_size
                written = tuple(pages[first : span.begin + span.num_pages])
                self._note(TagWritten(batch.launch, entry.request_id, pool.name, entry.start, entry.end, written))
        pool.kv.view(-1).index_copy_(0, _tensor(slots), _tensor(tags))

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


def _slot(pages: Sequence[int], span: PageSpan, position: int, page_size: int) -> int:
    """The slot of a request's position."""
    page, offset = divmod(position - span.first_position, page_size)
    return pages[span.begin + page] * page_size + offset


def _tensor(values: "array[int]") -> torch.Tensor:
    """The same memory as a tensor."""
    return torch.frombuffer(values, dtype=torch.int64)
