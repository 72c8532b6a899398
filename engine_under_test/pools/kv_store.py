"""The storage of the KV pools: one tensor a pool, a page a line."""

from collections.abc import Callable, Sequence

import torch

from engine_under_test.config import PoolSpec
from engine_under_test.ports import SlotLayout


class KVStore:
    """One (*outer, pages + 1, page_size, *inner) tensor per pool, zeros at first; line 0 is the padding page.

    What a slot holds is the model's business.  A freed page keeps its content until somebody writes it again,
    as on a GPU, unless it is poisoned.  Memory of the host `is_pinned` where a GPU copies to and from it by itself.
    """

    def __init__(
        self,
        pools: Sequence[PoolSpec],
        *,
        page_size: int,
        layout: Callable[[PoolSpec], SlotLayout],
        is_pinned: bool = False,
    ) -> None:
        self.page_size = page_size
        self._kv: dict[str, torch.Tensor] = {}
        self._layouts = {spec.name: layout(spec) for spec in pools}
        for spec in pools:
            dtype, outer, inner, device = self._layouts[spec.name]
            shape = (*outer, spec.num_pages + 1, page_size, *inner)
            self._kv[spec.name] = torch.zeros(shape, dtype=dtype, device=device, pin_memory=is_pinned)

    @property
    def pools(self) -> Sequence[str]:
        return list(self._kv)

    def kv(self, pool: str) -> torch.Tensor:
        return self._kv[pool]

    def page_dim(self, pool: str) -> int:
        """Which dimension of the pool's storage counts its pages."""
        return self._layouts[pool].page_dim

    def page_bytes(self, pool: str) -> int:
        """What one page of the pool holds, in bytes."""
        kv = self._kv[pool]
        return kv.nbytes // kv.shape[self.page_dim(pool)]

    def poison(self, pool: str, pages: Sequence[int]) -> None:
        """Overwrite pages with what shows in every result that it reaches."""
        kv, layout = self._kv[pool], self._layouts[pool]
        index = torch.tensor(pages, dtype=torch.int64, device=kv.device)
        kv.index_fill_(layout.page_dim, index, layout.rubbish)
