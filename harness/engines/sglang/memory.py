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
    BOTH,
    DECODE,
    LAZY_BUFFER,
    NO_BUFFER,
    SWA_TREE,
    UNIFIED_TREE,
    SglangConfig,
)
from swarden.harness.engines.sglang.moves import watch
from swarden.harness.engines.sglang.rust_core import PAIR_OF_CORES, register
from swarden.harness.engines.sglang.states import STATE_POOL, rows_with_states
from swarden.harness.engines.sglang.storage import make_storage, storage_args
from swarden.harness.kit.released_code import known, parameters
from swarden.harness.kit.stand_ins import Missing

DEVICE = "cpu"
SWA_LAYER, FULL_LAYER = 0, 1  # of the model; a layer of states is the third
BACKEND = "mooncake"  # the transfer backend by name; link.py replaces its classes
SPARE_OF_DRAFTS = 4  # entries of a row beside those for the tokens of a pass
PREALLOCATED_PER_RUNNING = 2  # rows of a decode side for requests in a transfer; the release's own factor


class SglangMemory(NamedTuple):
    """The request table, the allocator of the pools of KV, and the prefix tree."""

    rows: Any
    allocator: Any
    tree: Any

    @property
    def mapping(self) -> Any:
        """The windowed slot of each slot, as a tensor; None without a window."""
        return getattr(self.allocator, "full_to_swa_index_mapping", None)


def memory_of(
    release: SglangRelease, config: SglangConfig, server_args: Any, notice: Callable[[NamedTuple], None]
) -> SglangMemory:
    """The memory of an engine; the allocators are watched before a tree keeps their methods."""
    has_states = config.state_slots is not None
    rows = rows_with_states(release, config, row_len(config)) if has_states else _rows(release, config)
    allocator = _allocator(release, config, rows)
    for name, pool in zip(("full", "swa"), sub_allocators(allocator), strict=False):
        watch(name, pool, notice)
    if config.state_slots is not None:
        watch(STATE_POOL, rows.mamba_allocator, notice)
    return SglangMemory(rows, allocator, _tree(release, config, server_args, rows, allocator))


def sub_allocators(allocator: Any) -> tuple[Any, ...]:
    """The allocators of the pools of KV: full attention, and the window if there is one."""
    if not hasattr(allocator, "full_attn_allocator"):
        return (allocator,)
    return allocator.full_attn_allocator, allocator.swa_attn_allocator


def sub_pools(kv_cache: Any) -> tuple[Any, ...]:
    """The pools of KV, in the order of their allocators."""
    return (kv_cache.full_kv_pool, kv_cache.swa_kv_pool) if hasattr(kv_cache, "swa_kv_pool") else (kv_cache,)


def row_len(config: SglangConfig) -> int:
    """The length of a row of the request table, with entries for drafts: get_req_to_token_extra_context_len."""
    if config.draft_len is None:
        return config.max_context_len
    count = config.draft_len + 1
    of_two_passes = 2 * count + config.page_size - 1 if config.page_size > 1 else 0
    return config.max_context_len + max(SPARE_OF_DRAFTS + count, of_two_passes)


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


def switches_of(config: SglangConfig) -> dict[str, str]:
    """The variables of the environment for these settings."""
    switches = {
        "SGLANG_SWA_EVICTION_INTERVAL": config.window_eviction_interval,  # 128 by default, from 0.5.17 on
        "SGLANG_SWA_EVICTION_INTERVAL_MULTIPLIER": 1.0,
        "SGLANG_OPT_SWA_RELEASE_LEAF_LOCK_AFTER_WINDOW": config.releases_early,
        "SGLANG_OPT_RELEASE_PREFILL_SWA": config.releases_early,
        "SGLANG_OPT_SWA_SPLIT_LEAF_ON_INSERT": config.splits_leaves,
    }
    return {name: str(value).lower() for name, value in switches.items()}


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


def wanted_args(config: SglangConfig) -> dict[str, Any]:
    """The arguments of a server that differ from their defaults, or that a scheduler reads."""
    return {
        "model_path": "dummy",
        "tokenizer_path": "dummy",
        "device": DEVICE,
        "attention_backend": "torch_native",
        "sampling_backend": "pytorch",
        "disable_cuda_graph": True,
        "disable_overlap_schedule": not config.overlap,
        "speculative_algorithm": None if config.draft_len is None else "NGRAM",
        "speculative_num_draft_tokens": None if config.draft_len is None else config.draft_len + 1,
        "speculative_eagle_topk": None if config.draft_len is None else 1,  # drafts are a chain
        "disaggregation_mode": config.role,
        "disaggregation_transfer_backend": BACKEND if config.role != BOTH else None,
        "disaggregation_bootstrap_port": 1,
        "disaggregation_decode_retraction_backup": "cpu_tensor",  # as in all releases before there was a choice
        "num_reserved_decode_tokens": config.reserved_decode_tokens,
        "disable_radix_cache": not config.caches_prefixes,
        "disaggregation_decode_enable_radix_cache": config.decode_tree,
        "disaggregation_decode_enable_offload_kvcache": config.decode_offload,
        "grammar_backend": "none",
        "page_size": config.page_size,
        "chunked_prefill_size": config.chunk_len,
        "pp_max_micro_batch_size": config.max_running_requests,
        "max_running_requests": config.max_running_requests,
        "enable_priority_scheduling": config.preemption_threshold is not None,
        "schedule_low_priority_values_first": False,
        "enable_mixed_chunk": config.mixed_batches,
        "enable_hierarchical_cache": config.host_ratio is not None,
        "hicache_ratio": config.host_ratio or 1.0,
        "hicache_write_policy": config.write_policy,
        **storage_args(config),
        "enable_streaming_session": config.streaming_sessions,
        "mamba_radix_cache_strategy": config.state_strategy,
        "mamba_track_interval": config.state_interval,
    }


def state_grid(config: SglangConfig) -> int:
    """ServerArgs.mamba_cache_chunk_size; without buffers a state is cached after any token."""
    return 1 if config.state_strategy == NO_BUFFER else max(config.state_chunk_len, config.page_size)


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
