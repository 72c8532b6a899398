"""The storage of the KV pools: one tensor a pool, a page a line."""

from collections.abc import Sequence

import torch

from engine_under_test.config import PoolSpec


class KVStore:
    """One (pages + 1, page_size) int64 tensor per pool; line 0 is the padding page.

    A slot holds the tag of what was written there.  A freed page keeps its content until
    somebody writes it again, as on a GPU.
    """

    def __init__(self, pools: Sequence[PoolSpec], *, page_size: int) -> None:
        self.page_size = page_size
        self._kv = {spec.name: torch.zeros((spec.num_pages + 1, page_size), dtype=torch.int64) for spec in pools}

    def kv(self, pool: str) -> torch.Tensor:
        return self._kv[pool]
