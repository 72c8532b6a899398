"""The pools, the request table and the prefix tree of a release, and the settings that it reads for them."""

import dataclasses
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, cast

import msgspec

from swarden.harness.engines.sglang.boot import SglangRelease
from swarden.harness.engines.sglang.capability import Table
from swarden.harness.engines.sglang.config import SWA_TREE, UNIFIED_TREE, SglangConfig
from swarden.harness.engines.sglang.moves import watch
from swarden.harness.engines.sglang.options import DEVICE, row_len, switches_of, wanted_args
from swarden.harness.engines.sglang.pools import SglangMemory
from swarden.harness.kit.part import merged
from swarden.harness.kit.released_code import known, parameters
from swarden.harness.kit.stand_ins import Missing

SWA_LAYER, FULL_LAYER = 0, 1  # of the model; a layer of states is the third


class KVShape(NamedTuple):
    """The layers of a model by their kind, and the heads of each; without a window all layers are full."""

    full: Sequence[int]
    windowed: Sequence[int]
    num_heads: int
    head_dim: int


STAND_IN = KVShape((FULL_LAYER,), (SWA_LAYER,), 1, 2)


def memory_of(
    release: SglangRelease, config: SglangConfig, server_args: Any, notice: Callable[[NamedTuple], None]
) -> SglangMemory:
    """The memory of an engine; the allocators are watched before a tree keeps their methods."""
    rows = _rows(release, config, server_args)
    memory = SglangMemory(rows, _allocator(release, config, rows), None)
    for component, pool in zip(config.components, memory.allocators, strict=True):
        watch(component.pool, pool, notice)
    return memory._replace(tree=_tree(release, config, server_args, rows, memory.allocator))


def _rows(release: SglangRelease, config: SglangConfig, server_args: Any) -> Any:
    tables = filter(None, [part.table(release, config, server_args) for part in config.capabilities])
    table = next(tables, Table("ReqToTokenPool"))
    kind = release.code(table.kind)
    sizes = {"size": server_args.max_running_requests, "max_context_len": row_len(config)}
    return kind(**known({**sizes, "device": DEVICE, "enable_memory_saver": False, **table.more}, kind))


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
    for capability in config.capabilities:
        capability.prepare(release, args)
    if (parallel := release.code("get_parallel")) is not None:
        parallel()._overrides = {}  # those of the engine before this one
    release.code("publish_server_args")(args)
    _set_ranks(release, merged(terms.parallel for terms in config.terms))
    return args


def _set_ranks(release: SglangRelease, ranks: Mapping[str, Any]) -> None:
    """State the ranks that a server has from its process groups; an aborted turn of a session asks for them."""
    parallel = release.code("get_parallel")
    if parallel is not None:
        alone = {**dict.fromkeys(("pp_rank", "tp_rank", "attn_tp_rank"), 0), "pp_size": 1, "tp_size": 1}
        parallel()._overrides = {**parallel()._overrides, **alone, **ranks}
    batches = vars(sys.modules[release.code("ScheduleBatch").__module__])
    if (name := "get_tensor_model_parallel_rank") in batches:
        batches[name] = lambda: 0


def _allocator(release: SglangRelease, config: SglangConfig, rows: Any) -> Any:
    page, dtype = config.page_size, release.torch.float32
    sizes = {"size": config.full_pages * page, "page_size": page, "dtype": dtype, "device": DEVICE, "need_sort": False}
    states = getattr(rows, "mamba_pool", None)
    pool = kv_pool(release, config, STAND_IN, states)
    if config.has_window:
        return release.code("Allocator")(**sizes, size_swa=config.swa_pages * page, kvcache=pool)
    kind = release.code("FullAllocator" if page == 1 else "PagedAllocator")
    return kind(**known({**sizes, "kvcache": pool}, kind))


def kv_pool(release: SglangRelease, config: SglangConfig, shape: KVShape, states: Any = None) -> Any:
    """The pool of KV of a model with such layers, and with a pool of recurrent `states` beside it if there is one."""
    page, dtype = config.page_size, release.torch.float32
    of_pool: dict[str, Any] = {"size": config.full_pages * page, "page_size": page, "device": DEVICE, "dtype": dtype}
    of_pool |= {"head_num": shape.num_heads, "head_dim": shape.head_dim}
    if config.has_window:
        of_pool |= {"size_swa": config.swa_pages * page, "swa_attention_layer_ids": [*shape.windowed]}
        of_pool |= {"full_attention_layer_ids": [*shape.full], "enable_kvcache_transpose": False}
        kind = release.code("SWAKVPool")
        return kind(**known(of_pool, kind, also=("head_num", "head_dim", "dtype", "device")))
    of_pool |= {"enable_memory_saver": False}
    if states is None:
        if config.sidecar.is_on:
            return config.sidecar.pool(release, of_pool)
        return release.code("MHATokenToKVPool")(**of_pool, layer_num=len(shape.full))
    return release.code("HybridLinearKVPool")(**of_pool, full_attention_layer_ids=[*shape.full], mamba_pool=states)


def tree_of(release: SglangRelease, config: SglangConfig) -> str:
    """The class of the prefix tree.

    With full attention alone, with a host tier and without a prefix cache it is that of a server of the release.  A
    window alone, or states alone, have SWARadixCache or MambaRadixCache in each release that ships it (to 0.5.20); a
    server of 0.5.17 and later has UnifiedRadixCache for both (mem_cache/registry.py, default_radix_cache_factory).
    """
    names = [capability.tree for capability in config.capabilities if capability.tree]
    if names == ["HiRadixCache", "RadixCache"]:  # a decode side with a host tier
        names.pop()
    if config.has_window:
        names.append("SWARadixCache" if config.tree == SWA_TREE else release.trees[0])
    if not config.caches_prefixes:
        name = "SWAChunkCache" if config.has_window else "ChunkCache"
    elif config.tree == UNIFIED_TREE or len(names) > 1:
        name = "UnifiedRadixCache"
    else:
        [name] = names or ["RadixCache"]
    if release.has("one_tree") and name in ("RadixCache", "HiRadixCache"):
        name = "UnifiedRadixCache"
    return name if release.code(name) is not None or config.tree == SWA_TREE else "UnifiedRadixCache"


def _tree(release: SglangRelease, config: SglangConfig, server_args: Any, rows: Any, allocator: Any) -> Any:
    name, capabilities = tree_of(release, config), config.capabilities
    kind, init_params = release.code(name), release.code("CacheInitParams")
    assert kind is not None, f"{release.text} has no {name}"  # the target refuses such a configuration
    of_cache: dict[str, Any] = {
        "disable": not config.caches_prefixes,
        "req_to_token_pool": rows,
        "token_to_kv_pool_allocator": allocator,
        "page_size": config.page_size,
        "sliding_window_size": config.sliding_window,
        "chunked_prefill_size": config.chunk_len,
        "tree_core_backend": "python",  # the Rust core alone shows no nodes
        **merged(terms.cache_params for terms in config.terms),
    }
    beside: dict[str, Any] = {}
    if name == "UnifiedRadixCache":
        of_window = ["SWA"] if config.has_window else []
        names = ["FULL", *of_window, *[part.component for part in capabilities if part.component]]
        both = {"tree_components": tuple([release.code("ComponentType")[component] for component in names])}
        (of_cache if "tree_components" in parameters(init_params) else beside).update(both)
    if name == "HiRadixCache":
        of_cache.setdefault("tp_cache_group", Missing(size=lambda: 1))
        beside["server_args"] = server_args
    params = init_params(**known(of_cache, init_params))
    tree = kind(params=params, **beside)
    tree.pretty_print = lambda: None  # it prints before each error for want of memory
    for capability in reversed(capabilities):  # sessions around all else
        tree = capability.wrapped(release, tree, server_args, params)
    return tree
