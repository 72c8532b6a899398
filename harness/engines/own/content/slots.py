"""What was written to the slots of one pool: the prefix of each, and a checksum of its bytes."""

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import torch

from swarden.engine_under_test.pools.checksums import page_sums, slot_sums

Ints: TypeAlias = npt.NDArray[np.int64]


class SlotTable:
    """For each slot of a pool the tag of the prefix that it was written for (0: not known), and a checksum.

    The tags are in host memory.  The checksums are on the device of the pool, and are computed there.
    """

    def __init__(self, name: str, kv: torch.Tensor, page_dim: int) -> None:
        self.name = name
        self.page_size = kv.shape[page_dim + 1]
        self._pages = kv
        self._slots = kv.flatten(page_dim, page_dim + 1)
        assert self._slots.data_ptr() == kv.data_ptr(), f"the storage of {name} is not contiguous"
        self._dim = page_dim
        self.tags: Ints = np.zeros(self._slots.shape[page_dim], np.int64)
        self._sums = torch.zeros(len(self.tags), dtype=torch.int64, device=kv.device)
        self._swept = 0  # pages

    def slots_of(self, pages: Sequence[int]) -> Ints:
        """All slots of pages, in order."""
        first = np.asarray(pages, np.int64) * self.page_size
        return (first[:, None] + np.arange(self.page_size)).reshape(-1)

    def forget(self, pages: Sequence[int]) -> None:
        """The content of pages is not defined any more."""
        self.tags.reshape(-1, self.page_size)[list(pages)] = 0

    def record(self, slots: Ints, tags: Ints) -> None:
        """The slots hold the KV of the prefixes with these tags, in their bytes as they are now."""
        self.tags[slots] = tags
        index = self._index(slots)
        self._sums[index] = slot_sums(self._slots, self._dim, index)

    def sums(self, slots: Ints) -> torch.Tensor:
        """The checksums of the bytes as they are now."""
        return slot_sums(self._slots, self._dim, self._index(slots))

    def page_sums(self, pages: Sequence[int]) -> list[int]:
        """The checksums of whole pages as they are now."""
        index = torch.tensor(pages, dtype=torch.int64).to(self._sums.device)
        sums: list[int] = page_sums(self._pages.index_select(self._dim, index), self._dim).tolist()
        return sums

    def altered(self, slots: Ints) -> list[tuple[int, int]]:
        """The page and offset of each slot whose bytes are not those recorded; each change is found once."""
        written = slots[self.tags[slots] != 0]
        if not len(written):
            return []
        index = self._index(written)
        sums = slot_sums(self._slots, self._dim, index)
        differing = (sums != self._sums[index]).nonzero().flatten()
        self._sums[index[differing]] = sums[differing]
        pages, offsets = np.divmod(np.unique(written[differing.cpu().numpy()]), self.page_size)
        return list(zip(pages.tolist(), offsets.tolist(), strict=True))

    def next_swept(self, count: int) -> Ints:
        """The slots of the next `count` pages in turn."""
        num_pages = len(self.tags) // self.page_size
        pages = [(self._swept + index) % num_pages for index in range(min(count, num_pages))]
        self._swept = (self._swept + len(pages)) % num_pages
        return self.slots_of(pages)

    def _index(self, slots: Ints) -> torch.Tensor:
        return torch.from_numpy(slots).to(self._sums.device)
