"""The pools, the request table and the prefix tree of a release, and the settings that it reads for them."""

import atexit
import dataclasses
import os
import sys
from collections.abc import Callable
from typing import Any, NamedTuple, cast

import msgspec

from swarden.harness.engines.sglang.boot import SglangRelease
from swarden.harness.engines.sglang.config import (
    DECODE,
    LAZY_BUFFER,
    NO_BUFFER,
    SWA_TREE,
    UNIFIED_TREE,
    SglangConfig,
)
from swarden.harness.engines.sglang.moves import watch
from swarden.harness.engines.sglang.options import DEVICE, row_len, state_grid, switches_of, wanted_args
from swarden.harness.engines.sglang.parts.rust_core import PAIR_OF_CORES, register
from swarden.harness.engines.sglang.parts.states import rows_with_states
from swarden.harness.engines.sglang.parts.storage import make_storage
from swarden.harness.engines.sglang.pools import SglangMemory
from swarden.harness.kit.released_code import known, parameters
from swarden.harness.kit.stand_ins import Missing

SWA_LAYER, FULL_LAYER = 0, 1  # of the model; a layer of states is the third
PREALLOCATED_PER_RUNNING = 2  # rows of a decode side for requests in a transfer; the release's own factor


def memory_of(
    release: SglangRelease, config: SglangConfig, server_args: Any, notice: Callable[[NamedTuple], None]
) -> SglangMemory:
    """The memory of an engine; the allocators are watched before a tree keeps their methods."""
    has_states = config.state_slots is not None
    rows = rows_with_states(release, config, row_len(config)) if has_states else _rows(release, config)
    memory = SglangMemory(rows, _allocator(release, config, rows), None)
    for component, pool in zip(config.components, memory.allocators, strict=True):
        watch(component.pool, pool, notice)
    return memory._replace(tree=_tree(release, config, server_args, rows, memory.allocator))


def _rows(release: SglangRelease, config: SglangConfig) -> Any:
    spare = {"pre_alloc_size": PREALLOCATED_PER_RUNNING * config.max_running_requests}
    return release.code("DecodeReqToTokenPool" if config.role == DECODE else "ReqToTokenPool")(
        size=config.max_running_requests,
        max_context_len=row_len(config),
        device=DEVICE,
        enable_memory_saver=False,
        **(spare if config.role == DECODE else {}),
    )


def set_environment(config: SglangConfig) -> None:
    """Set what a release reads from the environment while it runs."""
    os.environ.update(switches_of(config))


def server_args_of(release: SglangRelease, config: SglangConfig) -> Any:
    """The arguments of a server, without the checks of __post_init__, which read a model from disk."""
    wanted = wanted_args(config)
    kind: Any = release.code("ServerArgs")
    if dataclasses.is_dataclass(kind):
        args: Any = object.__new__(cast(type, kind))
        for field in dataclasses.fields(kind):
            makes = field.default_factory
            value = field.default if makes is dataclasses.MISSING else makes()
            vars(args)[field.name] = None if value is dataclasses.MISSING else value
        vars(args).update(wanted)
    else:
        names = {field.name for field in msgspec.structs.fields(kind)}
        args = kind(**{name: value for name, value in wanted.items() if name in names})
    if config.state_slots is not None:
        args._mamba_cache_chunk_size = state_grid(config)  # else read from a model
    release.code("publish_server_args")(args)
    _be_the_only_rank(release)
    return args


def _be_the_only_rank(release: SglangRelease) -> None:
    """State the ranks that a server has from its process groups; an aborted turn of a session asks for them."""
    parallel = release.code("get_parallel")
    if parallel is not None:
        parallel()._overrides.update(**dict.fromkeys(("pp_rank", "tp_rank", "attn_tp_rank"), 0), pp_size=1, tp_size=1)
    batches = vars(sys.modules[release.code("ScheduleBatch").__module__])
    if (name := "get_tensor_model_parallel_rank") in batches:
        batches[name] = lambda: 0


def _allocator(release: SglangRelease, config: SglangConfig, rows: Any) -> Any:
    page, torch = config.page_size, release.torch
    if config.sliding_window is None:
        return _plain_allocator(release, config, rows)
    sizes = {"size": config.full_pages * page, "size_swa": config.swa_pages * page, "page_size": page}
    of_pool = {
        "dtype": torch.float32,
        "head_num": 1,
        "head_dim": 2,
        "swa_attention_layer_ids": [SWA_LAYER],
        "full_attention_layer_ids": [FULL_LAYER],
        "device": DEVICE,
        "enable_kvcache_transpose": False,
    }
    kind = release.code("SWAKVPool")
    pool = kind(**sizes, **known(of_pool, kind, also=("head_num", "head_dim", "dtype", "device")))
    return release.code("Allocator")(**sizes, dtype=torch.float32, device=DEVICE, kvcache=pool, need_sort=False)


def _plain_allocator(release: SglangRelease, config: SglangConfig, rows: Any) -> Any:
    """The allocator of full attention without a window."""
    page, dtype = config.page_size, release.torch.float32
    sizes = {"size": config.full_pages * page, "dtype": dtype, "device": DEVICE}
    of_pool = {**sizes, "page_size": page, "head_num": 1, "head_dim": 2, "enable_memory_saver": False}
    if config.state_slots is None:
        pool = release.code("FullKVPool")(**of_pool, layer_num=1)
    else:
        pool = release.code("HybridLinearKVPool")(
            **of_pool, full_attention_layer_ids=[FULL_LAYER], mamba_pool=rows.mamba_pool
        )
    kind = release.code("FullAllocator" if page == 1 else "PagedAllocator")
    return kind(**known({**sizes, "page_size": page, "kvcache": pool, "need_sort": False}, kind))


def tree_of(release: SglangRelease, config: SglangConfig) -> str:
    """The class of the prefix tree.

    With full attention alone, with a host tier and without a prefix cache it is that of a server of the release.  A
    window alone, or states alone, have SWARadixCache or MambaRadixCache in each release that ships it (to 0.5.20); a
    server of 0.5.17 and later has UnifiedRadixCache for both (mem_cache/registry.py, default_radix_cache_factory).
    """
    has_window, has_states, has_host = (
        setting is not None for setting in (config.sliding_window, config.state_slots, config.host_ratio)
    )
    if not config.caches_prefixes:
        name = "SWAChunkCache" if has_window else "ChunkCache"
    elif (
        config.tree == UNIFIED_TREE
        or (has_states and (has_window or has_host))
        or (has_window and (has_host or config.decode_tree))
    ):
        name = "UnifiedRadixCache"
    elif has_window:
        name = "SWARadixCache" if config.tree == SWA_TREE else release.trees[0]
    elif has_states:
        name = "MambaRadixCache"
    else:
        name = "UnifiedRadixCache" if release.has("one_tree") else "HiRadixCache" if has_host else "RadixCache"
    return name if release.code(name) is not None or config.tree == SWA_TREE else "UnifiedRadixCache"


def _tree(release: SglangRelease, config: SglangConfig, server_args: Any, rows: Any, allocator: Any) -> Any:
    name, has_states = tree_of(release, config), config.state_slots is not None
    kind, init_params = release.code(name), release.code("CacheInitParams")
    assert kind is not None, f"{release.text} has no {name}"  # the target refuses such a configuration
    of_cache: dict[str, Any] = {
        "disable": not config.caches_prefixes,
        "req_to_token_pool": rows,
        "token_to_kv_pool_allocator": allocator,
        "page_size": config.page_size,
        "sliding_window_size": config.sliding_window,
        "chunked_prefill_size": config.chunk_len,
        "enable_kv_cache_events": config.kv_events,
        "dynamo_kv_event_format": config.kv_events,
        "enable_mamba_extra_buffer": config.state_strategy != NO_BUFFER,
        "enable_mamba_extra_buffer_lazy": config.state_strategy == LAZY_BUFFER,
        "tree_core_backend": PAIR_OF_CORES if config.rust_core else "python",  # the Rust core alone shows no nodes
    }
    beside: dict[str, Any] = {}
    if name == "UnifiedRadixCache":
        components = release.code("ComponentType")
        of_window = () if config.sliding_window is None else (components.SWA,)
        of_states = (components.MAMBA,) if has_states else ()
        both = {"tree_components": (components.FULL, *of_window, *of_states)}
        (of_cache if "tree_components" in parameters(init_params) else beside).update(both)
    if name == "HiRadixCache":
        of_cache["tp_cache_group"] = Missing(size=lambda: 1)
        beside["server_args"] = server_args
    if config.rust_core:
        register(release)
    if config.storage_policy is not None:
        make_storage(release)
    params = init_params(**known(of_cache, init_params))
    tree = kind(params=params, **beside)
    if config.host_ratio is not None:
        if name != "HiRadixCache":  # which makes its host pool itself
            tree.init_hicache(server_args, params)
        tree.load_back_threshold = config.load_back_threshold  # no setting of a release
        if hasattr(tree, "shutdown"):
            atexit.unregister(tree.shutdown)  # atexit would keep the tree, and so its pools, until the process ends
    tree.pretty_print = lambda: None  # it prints before each error for want of memory
    wraps = config.streaming_sessions and not release.is_unified(tree)  # UnifiedRadixCache has its own
    return release.code("StreamingSession")(tree) if wraps else tree
