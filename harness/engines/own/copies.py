"""Checks that finished copy jobs copied the page contents."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch

from swarden.engine_under_test.pools.memory import KVMemory
from swarden.invariants.events import Copied, CopyBegan, CopyEnded


class CopyInspector:
    """Compares device and host pages when a copy job succeeds. Both pages are still unchanged at that event."""

    def __init__(self, memory: KVMemory, emit: Callable[[NamedTuple], None]) -> None:
        self._memory = memory
        self._emit = emit
        self._began: dict[int, CopyBegan] = {}

    def notice(self, event: object) -> None:
        if isinstance(event, CopyBegan):
            self._began[event.job] = event
        elif isinstance(event, CopyEnded):
            began = self._began.pop(event.job, None)
            for pool, here, there in began.pages if began is not None and event.failure is None else ():
                self._emit(Copied(event.job, pool, self._different(pool, here, there)))

    def _different(self, pool: str, here: Sequence[int], there: Sequence[int]) -> list[tuple[int, int]]:
        host = self._memory.host
        assert host is not None, "a copy job without a host"
        pools = [spec.name for spec in self._memory.pools]
        page_dim = self._memory.store.page_dim(pool)
        on_device = _pages(self._memory.store.kv(pool), here, page_dim)
        on_host = _pages(host.store.kv(host.pools[pools.index(pool)].name), there, page_dim)
        return [
            pair
            for index, pair in enumerate(zip(here, there, strict=True))
            if not torch.equal(on_device[index], on_host[index])
        ]


def _pages(kv: torch.Tensor, pages: Sequence[int], page_dim: int) -> torch.Tensor:
    """The bytes of the pages, one row per page."""
    chosen = kv.index_select(page_dim, torch.tensor(pages, dtype=torch.int64, device=kv.device))
    return chosen.movedim(page_dim, 0).contiguous().cpu().view(torch.uint8)
