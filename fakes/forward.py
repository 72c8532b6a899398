"""The stand-in for the model on its GPU: reads and writes tags where the model would KV."""

from array import array
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import torch

from engine_under_test.ports import ForwardBatch, PoolPages


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
        sums: list[list[int]] = [[] for _ in batch.entries]
        for pool in batch.pools:
            self._write(batch, pool)
            for entry_sums, total in zip(sums, self._read(batch, pool), strict=True):
                entry_sums.append(total)
        self._sampled[batch.launch] = [
            self._model.sampled_token(entry_sums) if entry.samples else None
            for entry, entry_sums in zip(batch.entries, sums, strict=True)
        ]

    def collect(self, launch: int) -> list[int | None]:
        return self._sampled.pop(launch)

    def _write(self, batch: ForwardBatch, pool: PoolPages) -> None:
        """Write the tag of every position that is computed, chained to the one stored before it."""
        page_size, pages = batch.page_size, pool.pages.tolist()
        slots = pool.kv.view(-1)
        before = [
            _slot(pages, span.begin, max(0, entry.start - 1) - span.first_position, page_size)
            for entry, span in zip(batch.entries, pool.spans, strict=True)
        ]
        stored = slots.index_select(0, torch.tensor(before)).tolist()
        written, tags = array("q"), array("q")
        for entry, span, tag in zip(batch.entries, pool.spans, stored, strict=True):
            if not entry.start:
                tag = self._model.namespace_tag(entry.namespace)
            for position, token in enumerate(entry.tokens, entry.start - span.first_position):
                tag = self._model.next_tag(tag, token)
                written.append(_slot(pages, span.begin, position, page_size))
                tags.append(tag)
            if self._note:
                first = span.begin + (entry.start - span.first_position) // page_size
                last = span.begin + span.num_pages
                self._note(
                    TagWritten(
                        batch.launch, entry.request_id, pool.name, entry.start, entry.end, tuple(pages[first:last])
                    )
                )
        slots.index_copy_(0, torch.frombuffer(written, dtype=torch.int64), torch.frombuffer(tags, dtype=torch.int64))

    def _read(self, batch: ForwardBatch, pool: PoolPages) -> list[int]:
        """The sum of the tags that each entry's last position sees; all reads in one gather."""
        page_size, count = batch.page_size, len(pool.pages)
        tags, running = array("q", bytes(8 * count * page_size)), array("q", bytes(8 * (count * page_size + 1)))
        gathered = torch.frombuffer(tags, dtype=torch.int64)
        torch.index_select(pool.kv, 0, pool.pages, out=gathered.view(count, page_size))
        torch.cumsum(gathered, 0, out=torch.frombuffer(running, dtype=torch.int64)[1:])
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


def _slot(pages: Sequence[int], begin: int, position: int, page_size: int) -> int:
    """The slot of a position, counted from the first one of its span."""
    return pages[begin + position // page_size] * page_size + position % page_size
