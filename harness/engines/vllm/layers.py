"""The groups of layers of a model, and limits of settings."""

from typing import Any, NamedTuple

POOL = "blocks"
WAITS_FOR_LOAD = "WAITING_FOR_REMOTE_KVS"  # the status of a request
MAX_BLOCKS, MAX_CONTEXT_LEN = 1 << 22, 1 << 20
NONE, ALL, ALIGN = "none", "all", "align"  # mamba_cache_mode


class LayerGroup(NamedTuple):
    """A group of layers: the tokens that one sees (None: all), the tokens of a block, and whether it has states."""

    window: int | None
    block_len: int
    has_states: bool = False


def specs_of(scheduler: Any) -> list[Any]:
    """The release's description of each group."""
    return [group.kv_cache_spec for group in scheduler.kv_cache_config.kv_cache_groups]


def pool_len(scheduler: Any) -> int:
    """The blocks of the pool, without the null block."""
    return len(scheduler.kv_cache_manager.block_pool.blocks) - 1
