"""The pages that a transfer sends, which are those that the next token reads, and how they are read and written."""

from array import array
from collections.abc import Iterator, Sequence, Set
from hashlib import sha256
from typing import NamedTuple

import torch

from swarden.engine_under_test.pools.checksums import page_sums
from swarden.engine_under_test.pools.memory import KVMemory
from swarden.engine_under_test.request import Request

MOST_PAGES = 1024  # pages of one message, whose header has their checksums


class Pages(NamedTuple):
    """Pages of a pool from page index `first` of a prompt on: `kv` as its storage has them, and checksums or none."""

    pool: str
    first: int
    num_pages: int
    kv: torch.Tensor
    checksums: tuple[int, ...] = ()


def shape_of(memory: KVMemory, pool: str, count: int) -> tuple[int, ...]:
    """The shape of the content of `count` pages."""
    kv, page_dim = memory.store.kv(pool), memory.store.page_dim(pool)
    return (*kv.shape[:page_dim], count, *kv.shape[page_dim + 1 :])


def terms_of(memory: KVMemory) -> str:
    """The page layout, which must be the same on both sides: page size, pools, windows, slots, and their content."""
    pools = []
    for pool in memory.pools:
        kv, page_dim = memory.store.kv(pool.name), memory.store.page_dim(pool.name)
        shape = (*kv.shape[:page_dim], *kv.shape[page_dim + 2 :])
        window = f" with window {pool.window}" if pool.window else ""
        content = f"{str(kv.dtype).removeprefix('torch.')} {list(shape)}"
        pools.append(f"{pool.name}{window} of {content} {f'in {pool.slots} states' if pool.slots else 'a token'}")
    return f"pages of {memory.page_size} tokens, {', '.join(pools)}"


def request_terms(request: Request) -> str:
    """The part of a request that must be the same on both sides: its prompt, and whether a token follows it."""
    prompt = request.tokens[: request.prompt_len]
    digest = sha256(array("q", prompt).tobytes()).hexdigest()[:16]
    return f"a prompt of {len(prompt)} tokens ({digest}) and {num_first_tokens(request)} new"


def num_first_tokens(request: Request) -> int:
    """The number of output tokens that the prefill side computes."""
    return min(1, request.sampling.max_new_tokens)


def disagreement(here: str, there: str) -> str | None:
    """The reason why the two sides cannot exchange pages; None where they can."""
    remedy = "give both the same configuration and the same prompt"
    return None if here == there else f"the sides differ: {here} here, {there} there; {remedy}"


def all_pages_due(memory: KVMemory, *, prefix_len: int, length: int) -> dict[str, range]:
    """The page indices of each pool that a request with [0, prefix_len) needs to continue after `length`."""
    return {pool.name: pool.pages_due(prefix_len, length) for pool in memory.pools}


def pieces(memory: KVMemory, pool: str, due: range, *, max_bytes: int) -> Iterator[range]:
    """Page indices of one pool, split so that each piece has at most `max_bytes` of content and MOST_PAGES."""
    size = min(MOST_PAGES, max_bytes // max(1, memory.store.page_bytes(pool)))
    for start in range(due.start, due.stop, size):
        yield range(start, min(start + size, due.stop))


def read_pages(memory: KVMemory, pool: str, handles: Sequence[int]) -> tuple[list[int], torch.Tensor]:
    """The pages of one pool that handles name, and a copy of their content."""
    pages = memory.ledgers.pages_of(pool, handles)
    index = torch.tensor(pages, dtype=torch.int64)
    kv = memory.store.kv(pool)
    return pages, kv.index_select(memory.store.page_dim(pool), index.to(kv.device))


def checksums_of(memory: KVMemory, pool: str, kv: torch.Tensor) -> tuple[int, ...]:
    """A checksum of each page in `kv`."""
    return tuple(page_sums(kv, memory.store.page_dim(pool)).tolist())


def write_pages(memory: KVMemory, sent: Pages, handles: Sequence[int], due: Set[int]) -> Iterator[tuple[int, int]]:
    """Write the pages whose index is in `due`; yields each index with the page that was written."""
    wanted = [index for index in range(sent.first, sent.first + sent.num_pages) if index in due]
    if wanted:
        pages = memory.ledgers.pages_of(sent.pool, [handles[index] for index in wanted])
        kv, page_dim = memory.store.kv(sent.pool), memory.store.page_dim(sent.pool)
        chosen = torch.tensor([index - sent.first for index in wanted], dtype=torch.int64)
        content = sent.kv.index_select(page_dim, chosen.to(sent.kv.device)).to(kv.device)
        kv.index_copy_(page_dim, torch.tensor(pages, dtype=torch.int64).to(kv.device), content)
        yield from zip(wanted, pages, strict=True)
