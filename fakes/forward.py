"""The fake of a model: it reads and writes tags instead of KV."""

from array import array
from collections.abc import Callable, Sequence

import numpy as np
import torch

from swarden.engine_under_test.ports import Computed, ForwardBatch, PoolPages, PoolSpec, SlotLayout
from swarden.fakes.places import slot_of, written_pages, written_slots
from swarden.harness.kit.tags import TagModel
from swarden.invariants.events import Read, Written


class FakeForward:
    """Writes a hash of the prefix to each slot, and samples from all tags that it reads.

    The tag of a position is computed from the stored tag of the position before.  So a wrong page changes the tags that
    are written and read, and the output.
    """

    def __init__(self, model: TagModel, note: Callable[[Read | Written], None] | None = None) -> None:
        self._model = model
        self._note = note
        self._batches: dict[int, ForwardBatch] = {}
        self._sampled: dict[int, list[int]] = {}  # by request, of the last pass

    @property
    def model(self) -> str:
        return "of tags"

    @property
    def vocab_size(self) -> None:
        """No limit: every integer is a token."""

    def layout(self, _pool: PoolSpec) -> SlotLayout:
        """A slot holds one tag."""
        return SlotLayout(torch.int64)

    def launch(self, batch: ForwardBatch) -> None:
        self._batches[batch.launch] = batch

    def collect(self, launch: int) -> list[Computed]:
        batch = self._batches.pop(launch)
        self._sampled = self._run(batch)
        return [Computed(self._sampled.get(entry.request_id, ())) for entry in batch.entries]

    def _run(self, batch: ForwardBatch) -> dict[int, list[int]]:
        """Write tags, read tags and sample from them; returns the next tokens by request."""
        pages_by_pool = [pool.pages.tolist() for pool in batch.pools]
        tags = self._new_tags(batch, _stored_before(batch, pages_by_pool[0]))
        sums = []
        for component, (pool, pages) in enumerate(zip(batch.pools, pages_by_pool, strict=True)):
            if pool.states:
                sums.append(self._run_states(batch, component, pages))
                continue
            _write(batch, pool, pages, tags)
            if self._note:
                self._note_written(batch, component, pages)
            sums.append(self._read(batch, component))
        return {
            entry.request_id: [
                self._model.sampled_token(of_place)
                for of_place in zip(*[of_pool[index] for of_pool in sums], strict=True)
            ]
            for index, entry in enumerate(batch.entries)
            if entry.num_samples
        }

    def _new_tags(self, batch: ForwardBatch, stored: Sequence[int]) -> "array[int]":
        """The tags of all computed positions, chained to the tag that is stored before them."""
        next_tag, tags = self._model.next_tag, array("q")
        for entry, tag in zip(batch.entries, stored, strict=True):
            if not entry.start:
                tag = self._model.namespace_tag(entry.namespace)
            tokens = [*entry.tokens, *self._sampled[entry.request_id]] if entry.follows else entry.tokens
            for token in tokens:
                tag = next_tag(tag, token)
                tags.append(tag)
        return tags

    def _run_states(self, batch: ForwardBatch, component: int, pages: list[int]) -> list[list[int]]:
        """Chain each entry's tags to the state that it starts from, and store some of them.

        Returns the sum of the last two tags at each position that samples: that is what a window of two tokens shows.
        """
        pool, sums = batch.pools[component], []
        stored, first = pool.kv.numpy().reshape(-1), 0
        read = stored[[states.read for states in pool.states]].tolist()
        tags = self._new_tags(batch, read)
        for entry, states, before in zip(batch.entries, pool.states, read, strict=True):
            start, length = entry.start, entry.end - entry.start
            seen = array("q", [before] if start else [])
            of_entry = seen + tags[first : first + length]
            first, offset = first + length, len(seen) - start
            stored[list(states.slots)] = [of_entry[offset + position] for position in states.positions]
            ends = range(offset + entry.end - entry.num_samples + 1, offset + entry.end + 1)
            sums.append([sum(of_entry[max(0, end - 2) : end]) for end in ends])
            if self._note:
                self._note(Read(batch.launch, entry.request_id, pool.name, max(0, start - 1), seen, component))
        if self._note:
            self._note_written(batch, component, pages)
        return sums

    def _note_written(self, batch: ForwardBatch, component: int, pages: list[int]) -> None:
        assert self._note, "there is no observer"
        pool = batch.pools[component]
        for entry, written in zip(batch.entries, written_pages(batch, pool, pages), strict=True):
            stretch = (pool.name, entry.start, entry.end)
            self._note(Written(batch.launch, entry.request_id, *stretch, written, component))

    def _read(self, batch: ForwardBatch, component: int) -> list[list[int]]:
        """The sum of the visible tags at each position that samples; one gather for all reads."""
        pool, page_size = batch.pools[component], batch.page_size
        tags = pool.kv.numpy()[pool.pages.numpy()].reshape(-1)
        running = [0, *tags.cumsum().tolist()]
        totals = []
        for entry, span in zip(batch.entries, pool.spans, strict=True):
            base = span.begin * page_size - span.first_position
            totals.append(
                [
                    running[base + end] - running[base + (0 if pool.window is None else max(0, end - pool.window))]
                    for end in range(entry.end - entry.num_samples + 1, entry.end + 1)
                ]
            )
            if self._note:
                start = 0 if pool.window is None else max(0, entry.start + 1 - pool.window)
                read = array("q", tags[base + start : base + entry.end].tobytes())
                self._note(Read(batch.launch, entry.request_id, pool.name, start, read, component))
        return totals


def _stored_before(batch: ForwardBatch, pages: Sequence[int]) -> list[int]:
    """The tag in the first pool before the computed positions of each entry."""
    pool, page_size = batch.pools[0], batch.page_size
    before = [
        slot_of(pages, span, max(entry.start - 1, 0), page_size)
        for entry, span in zip(batch.entries, pool.spans, strict=True)
    ]
    stored: list[int] = pool.kv.numpy().reshape(-1)[before].tolist()
    return stored


def _write(batch: ForwardBatch, pool: PoolPages, pages: list[int], tags: "array[int]") -> None:
    """Write the tags of all computed positions, entry by entry."""
    slots = written_slots(batch, pool, pages)
    if slots:
        pool.kv.numpy().reshape(-1)[np.frombuffer(slots, dtype=np.int64)] = np.frombuffer(tags, dtype=np.int64)
