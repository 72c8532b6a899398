"""Checksums of the content of slots, computed where the storage is."""

from functools import cache

import torch
from torch.nn.functional import pad

WORD_BYTES = 8
MOST_SLOTS = 8192  # gathered at once
MIX = (-0x61C8864680B583EB, -0x40A7B892E31B1A47)  # the odd factors of splitmix64, as signed numbers


def slot_sums(kv: torch.Tensor, dim: int, slots: torch.Tensor) -> torch.Tensor:
    """A checksum of each of the `slots` (n,) int64, along dimension `dim` of `kv`; (n,) int64 on the device of `kv`.

    A slot with one changed byte always has another checksum: it is a sum of its 64-bit words, each with an odd factor.
    """
    return torch.cat([_sums(kv.index_select(dim, part), dim) for part in torch.split(slots, MOST_SLOTS)])


def page_sums(kv: torch.Tensor, page_dim: int) -> torch.Tensor:
    """A checksum of each page of (*outer, pages, page_size, *inner); (pages,) int64."""
    return _sums(kv, page_dim)


def _sums(kv: torch.Tensor, dim: int) -> torch.Tensor:
    rows = kv.movedim(dim, 0).reshape(kv.shape[dim], -1).contiguous().view(torch.uint8)
    size = rows.shape[1]  # 0 in a pool that no layer reads
    words = pad(rows, (0, max(WORD_BYTES - size, -size % WORD_BYTES))).view(torch.int64)
    return (words * _factors(words.shape[1], kv.device)).sum(1)


@cache
def _factors(count: int, device: torch.device) -> torch.Tensor:
    """Different odd factors, so that two words that exchange their places change the sum."""
    mixed = torch.arange(1, count + 1, dtype=torch.int64, device=device) * MIX[0]
    return ((mixed ^ (mixed >> 27)) * MIX[1]) | 1
