"""The unsteady forward: a wrapper with faults."""

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

import torch

from swarden.engine_under_test.ports import Computed, Forward, ForwardBatch, ForwardFailed, PoolSpec, SlotLayout
from swarden.fakes.faults import Faults
from swarden.fakes.places import readers, written_pages, written_slots


class UnsteadyForward:
    """Wraps a forward.  It runs a pass as late as possible: when it is collected."""

    FAULTS: ClassVar = {
        "forward.fails": "a pass writes rubbish to its slots, and `collect` raises ForwardFailed",
        "forward.late": "a pass is not done when it is collected",
    }

    def __init__(self, steady: Forward, plan: Faults) -> None:
        self._steady = steady
        self._plan = plan
        self._layouts: dict[str, SlotLayout] = {}
        self._batches: dict[int, ForwardBatch] = {}
        self._lost: dict[int, set[int]] = {}  # by launch, the entries that read pages of a failed pass

    @property
    def model(self) -> str:
        return self._steady.model

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
        rest = [index for index in range(len(launched.entries)) if index not in lost]
        batch = _only(launched, rest) if lost else launched
        if self._plan.fires("forward.fails"):
            self._spoil(batch)
            raise ForwardFailed(f"launch {launch}: the device gave up")
        computed = [Computed()] * len(launched.entries)
        if rest:
            self._steady.launch(batch)
            for index, result in zip(rest, self._steady.collect(launch) or (), strict=True):
                computed[index] = result
        return computed

    def _spoil(self, batch: ForwardBatch) -> None:
        """Overwrite the slots of the batch; entries in flight that read its pages are not computed."""
        for index, pool in enumerate(batch.pools):
            pages = pool.pages.tolist()
            layout = self._layouts[pool.name]
            slots = torch.tensor(written_slots(batch, pool, pages), dtype=torch.int64, device=pool.kv.device)
            flat = pool.kv.flatten(layout.page_dim, layout.page_dim + 1)
            flat.index_fill_(layout.page_dim, slots, layout.rubbish)
            spoiled = {page for of_entry in written_pages(batch, pool, pages) for page in of_entry}
            for launch, later in self._batches.items():
                self._lost.setdefault(launch, set()).update(readers(later.pools[index], spoiled))


def _only(batch: ForwardBatch, indices: Sequence[int]) -> ForwardBatch:
    """The batch with the entries at these `indices`; the pages of the other entries stay in its page list."""
    pools = [
        replace(
            pool,
            spans=[pool.spans[index] for index in indices],
            states=[pool.states[index] for index in indices if pool.states],
        )
        for pool in batch.pools
    ]
    return replace(batch, entries=[batch.entries[index] for index in indices], pools=pools)
