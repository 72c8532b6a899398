"""Which pages of a prompt go to the other side, and how they are read and written.

Stated per pool, once: of one that keeps the whole prefix everything, of a windowed one what the next token reads.
"""

from array import array
from collections.abc import Iterator, Sequence, Set
from hashlib import sha256
from typing import NamedTuple

import torch

from engine_under_test.config import PoolSpec
from engine_under_test.pools.memory import KVMemory
from engine_under_test.request import Request
from engine_under_test.units import align_down, lookback, num_pages

MOST_BYTES = 1 << 26  # of a parcel, unless a page alone is more


class Pages(NamedTuple):
    """What pages of one pool hold, from page index `first` of a prompt on, in the layout of the pool's storage."""

    pool: str
    first: int
    num_pages: int
    kv: torch.Tensor


def terms_of(memory: KVMemory) -> str:
    """What both sides must agree in: the tokens of a page, the pools with their windows, and what their slots hold."""
    pools = []
    for pool in memory.pools:
        kv, page_dim = memory.store.kv(pool.name), memory.store.page_dim(pool.name)
        shape = (*kv.shape[:page_dim], *kv.shape[page_dim + 2 :])
        window = f" with window {pool.window}" if pool.window else ""
        pools.append(f"{pool.name}{window} of {str(kv.dtype).removeprefix('torch.')} {list(shape)} a token")
    return f"pages of {memory.page_size} tokens, {', '.join(pools)}"


def request_terms(request: Request) -> str:
    """What both sides must agree in of one request: its prompt, and whether there is to be a first token."""
    prompt, num_first = request.tokens[: request.prompt_len], min(1, request.sampling.max_new_tokens)
    digest = sha256(array("q", prompt).tobytes()).hexdigest()[:16]
    return f"a prompt of {len(prompt)} tokens ({digest}) and {num_first} new"


def disagreement(here: str, there: str) -> str | None:
    """Why pages cannot go from one side to the other; None where they can."""
    same = "give both one configuration and the same prompt"
    return None if here == there else f"the sides differ: {here} here, {there} there; {same}"


def window_start(length: int, *, window: int, page_size: int) -> int:
    """Where the page begins in which the first position lies that the token behind `length` reads."""
    return align_down(max(0, length - lookback(window)), page_size)


def pages_due(pool: PoolSpec, *, prefix_len: int, length: int, page_size: int) -> range:
    """The page indices of [0, length) that whoever has [0, prefix_len) lacks in one pool, to go on behind it."""
    start = 0 if pool.window is None else window_start(length, window=pool.window, page_size=page_size)
    return range(max(start, prefix_len) // page_size, num_pages(length, page_size))


def pieces(memory: KVMemory, pool: str, due: range) -> Iterator[range]:
    """Page indices of one pool in as many pieces as it takes for each to be a parcel of at most MOST_BYTES."""
    size = max(1, MOST_BYTES // memory.store.page_bytes(pool))
    for start in range(due.start, due.stop, size):
        yield range(start, min(start + size, due.stop))


def read_pages(memory: KVMemory, pool: str, handles: Sequence[int]) -> tuple[list[int], torch.Tensor]:
    """The pages of one pool behind handles, and a copy of what they hold."""
    pages = memory.ledgers.pages_of(pool, handles)
    index = torch.tensor(pages, dtype=torch.int64)
    kv = memory.store.kv(pool)
    return pages, kv.index_select(memory.store.page_dim(pool), index.to(kv.device))


def write_pages(memory: KVMemory, held: Pages, handles: Sequence[int], due: Set[int]) -> Iterator[tuple[int, int]]:
    """Write those of the pages whose index is `due`; each index, and the page it went to."""
    wanted = [index for index in range(held.first, held.first + held.num_pages) if index in due]
    if wanted:
        pages = memory.ledgers.pages_of(held.pool, [handles[index] for index in wanted])
        kv, page_dim = memory.store.kv(held.pool), memory.store.page_dim(held.pool)
        chosen = torch.tensor([index - held.first for index in wanted], dtype=torch.int64)
        came = held.kv.index_select(page_dim, chosen.to(held.kv.device)).to(kv.device)
        kv.index_copy_(page_dim, torch.tensor(pages, dtype=torch.int64).to(kv.device), came)
        yield from zip(wanted, pages, strict=True)
