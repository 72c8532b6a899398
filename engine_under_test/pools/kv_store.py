"""The storage of the KV pools: one tensor per pool."""

from collections.abc import Callable, Sequence

import torch

from swarden.engine_under_test.config import PoolSpec
from swarden.engine_under_test.errors import ConfigError
from swarden.engine_under_test.ports import SlotLayout


class KVStore:
    """One (*outer, pages + 1, slots, *inner) tensor per pool, zeros at first; page 0 is the padding page.

    A page has a slot for each of its tokens, or as many as its pool says.  The model defines the content of a slot.  A
    freed page keeps its content until the next write, as on a GPU, unless it is poisoned.  Host memory `is_pinned` if a
    GPU copies to and from it asynchronously.
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
            shape = (*outer, spec.num_pages + 1, spec.slots or page_size, *inner)
            try:
                self._kv[spec.name] = torch.zeros(shape, dtype=dtype, device=device, pin_memory=is_pinned)
            except RuntimeError as error:
                what = str(error).partition("\n")[0]
                raise ConfigError(
                    f"{spec.name} pool: {spec.num_pages} pages do not fit into the memory of {device}: {what}"
                ) from error

    @property
    def pools(self) -> Sequence[str]:
        return list(self._kv)

    def kv(self, pool: str) -> torch.Tensor:
        return self._kv[pool]

    def page_dim(self, pool: str) -> int:
        """The dimension of the pool's storage that counts its pages."""
        return self._layouts[pool].page_dim

    def page_bytes(self, pool: str) -> int:
        """The size of one page of the pool, in bytes."""
        kv = self._kv[pool]
        return kv.nbytes // kv.shape[self.page_dim(pool)]

    def poison(self, pool: str, pages: Sequence[int]) -> None:
        """Overwrite pages with a value that shows in every result computed from it."""
        kv, layout = self._kv[pool], self._layouts[pool]
        index = torch.tensor(pages, dtype=torch.int64, device=kv.device)
        kv.index_fill_(layout.page_dim, index, layout.rubbish)


def bytes_of(tensor: torch.Tensor) -> memoryview:
    """The bytes of a tensor, without a copy if it is contiguous and on the CPU."""
    memory: memoryview = tensor.contiguous().cpu().flatten().view(torch.uint8).numpy().data
    return memory
