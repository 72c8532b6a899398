"""The memory of a scheduler of a release: the request table, the pools of KV with their allocators, and the tree."""

from collections.abc import Callable
from typing import Any, NamedTuple

MAX_PAGES = 1 << 22  # as many as those of a server with pages of one token
EVERYTHING = 10**9  # tokens, more than any pool has


class SglangMemory(NamedTuple):
    """The request table, the allocator of the pools of KV, and the prefix tree."""

    rows: Any
    allocator: Any
    tree: Any

    @property
    def mapping(self) -> Any:
        """The windowed slot of each slot, as a tensor; None without a window."""
        return getattr(self.allocator, "full_to_swa_index_mapping", None)

    @property
    def allocators(self) -> tuple[Any, ...]:
        """The allocator of each component: full attention, a window and recurrent states, as far as there are any."""
        allocator, of_states = self.allocator, getattr(self.rows, "mamba_allocator", None)
        is_alone = not hasattr(allocator, "full_attn_allocator")
        of_kv = (allocator,) if is_alone else (allocator.full_attn_allocator, allocator.swa_attn_allocator)
        return of_kv if of_states is None else (*of_kv, of_states)


class BuiltScheduler(NamedTuple):
    """The scheduler and its memory; `namespace_of` numbers the extra keys of its requests."""

    scheduler: Any
    memory: SglangMemory
    namespace_of: Callable[[str | None], int]


def sub_pools(kv_cache: Any) -> tuple[Any, ...]:
    """The pools of KV, in the order of their allocators."""
    return (kv_cache.full_kv_pool, kv_cache.swa_kv_pool) if hasattr(kv_cache, "swa_kv_pool") else (kv_cache,)
