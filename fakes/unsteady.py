"""A forward on a device that is not to be relied on."""

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

import torch

from engine_under_test.ports import Computed, Forward, ForwardBatch, ForwardFailed, PoolSpec, SlotLayout
from fakes.faults import Faults
from fakes.places import readers, written_pages, written_slots


class UnsteadyForward:
    """Another forward, which runs a pass only when it is collected, as late as may be, and permits these faults:"""

    FAULTS: ClassVar = {
        "forward.fails": "the pass leaves rubbish where it should have written, and collecting it raises ForwardFailed",
        "forward.late": "the pass is not done when it is asked for, and is asked again",
    }

    def __init__(self, steady: Forward, plan: Faults) -> None:
        self._steady = steady
        self._plan = plan
        self._layouts: dict[str, SlotLayout] = {}
        self._batches: dict[int, ForwardBatch] = {}
        self._lost: dict[int, set[int]] = {}  # by launch, the entries that would read what a failed pass left

    @property
    def vocab_size(self) -> int | None:
        return self._steady.vocab_size

    def layout(self, pool: PoolSpec) -> SlotLayout:
        return self._layouts.setdefault(pool.name, self._steady.layout(pool))

    def launch(self, batch: ForwardBatch) -> None:
        self._batches[batch.launch] = batch

    def collect(self, launch: int) -> list[Computed] | None:
        if self._plan.fires("forward.late"):
            return None
        launched, lost = self._batches.pop(launch), self._lost.pop(launch, set())
        kept = [index for index in range(len(launched.entries)) if index not in lost]
        batch = _only(launched, kept) if lost else launched
        if self._plan.fires("forward.fails"):
            self._spoil(batch)
            raise ForwardFailed(f"launch {launch}: the device gave up")
        computed = [Computed()] * len(launched.entries)
        if kept:
            self._steady.launch(batch)
            for index, one in zip(kept, self._steady.collect(launch) or (), strict=True):
                computed[index] = one
        return computed

    def _spoil(self, batch: ForwardBatch) -> None:
        """Leave no trace of what was there; who was launched on top of it has nothing to go on from either."""
        for index, pool in enumerate(batch.pools):
            pages = pool.pages.tolist()
            layout = self._layouts[pool.name]
            slots = torch.tensor(written_slots(batch, pool, pages), dtype=torch.int64, device=pool.kv.device)
            flat = pool.kv.flatten(layout.page_dim, layout.page_dim + 1)
            flat.index_fill_(layout.page_dim, slots, layout.rubbish)
            spoiled = {page for of_entry in written_pages(batch, pool, pages) for page in of_entry}
            for launch, later in self._batches.items():
                self._lost.setdefault(launch, set()).update(readers(later.pools[index], spoiled))


def _only(batch: ForwardBatch, kept: Sequence[int]) -> ForwardBatch:
    """A batch less the entries that are lost; their pages are left in the list, unread."""
    pools = [replace(pool, spans=[pool.spans[index] for index in kept]) for pool in batch.pools]
    return replace(batch, entries=[batch.entries[index] for index in kept], pools=pools)
