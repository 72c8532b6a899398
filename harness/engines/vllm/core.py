"""The release's engine core, built without its start: no process, no socket, no model."""

import queue
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import chain
from typing import Any

import msgspec

from swarden.harness.engines.vllm.boot import VllmRelease
from swarden.harness.engines.vllm.config import VllmConfig
from swarden.harness.engines.vllm.connector import LMCACHE, transfer_config
from swarden.harness.kit.calls import Wrap, intercept
from swarden.harness.kit.released_code import known, parameters
from swarden.invariants.kinds import Place

Arguments = Mapping[str, dict[str, Any]]
# Methods of EngineCore that only log.
SILENT_CONTEXTS = ("log_error_detail", "log_iteration_details", "capture_iteration_details")
QUEUES = ("waiting", "skipped_waiting", "kv_holding_waiting")  # the queues of waiting requests, in any release
LAYER = {"num_kv_heads": 1, "head_size": 1, "use_mla": False}


class BuiltCore(msgspec.Struct, frozen=True):
    """An engine core, and the parts of it that own KV memory.  `number_of` numbers the requests by their ids.

    Methods of the parts are wrapped by `wrap`.  The pool of CPU memory has no `manager`, as no request has a table of
    its blocks.
    """

    core: Any
    scheduler: Any
    manager: Any
    pool: Any
    hasher: Callable[[Any], Any] | None
    number_of: Callable[[str], int]
    wrap: Wrap = intercept

    @property
    def tables(self) -> list[Any]:
        """The release's manager of each group of layers, which has the block tables."""
        return list(self.manager.coordinator.single_type_managers) if self.manager else []

    def places(self) -> dict[int, Place]:
        """Where each request is, by the identity of its object."""
        waiting = [getattr(self.scheduler, name) for name in QUEUES if hasattr(self.scheduler, name)]
        tables, places = self.tables, dict[int, Place]()
        for req in chain.from_iterable(waiting):
            has_blocks = any(table.req_to_blocks.get(req.request_id) for table in tables)
            places[id(req)] = Place.LOADING if has_blocks else Place.WAITING
        return places | dict.fromkeys(map(id, self.scheduler.running), Place.RUNNING)


def build(release: VllmRelease, config: VllmConfig, runner: Any) -> BuiltCore:
    config.prepare(release)
    arguments = config.arguments(release)
    transfers = transfer_config(release, config, arguments["KVTransferConfig"])
    vllm_config = _vllm_config(release, arguments, transfers)
    groups = _groups(release, config, arguments)
    scheduled, hashed = release.code("resolve_kv_cache_block_sizes")(groups, vllm_config)  # tokens
    vllm_config.cache_config.block_size = min(group.block_len for group in config.groups)
    scheduler = _scheduler(
        release, vllm_config=vllm_config, kv_cache_config=groups, block_size=scheduled, hash_block_size=hashed
    )
    core = type("Core", (release.code("EngineCore"),), {"__init__": lambda core: None})()
    has_drafts = vllm_config.speculative_config is not None
    vars(core).update(
        vllm_config=vllm_config,
        scheduler=scheduler,
        model_executor=runner,
        batch_queue_size=config.most_launches,
        batch_queue=deque(maxlen=config.most_launches) if config.most_launches > 1 else None,
        async_scheduling=config.most_launches > 1,
        aborts_queue=queue.Queue(),
        use_spec_decode=has_drafts,
        check_for_draft_tokens=has_drafts,
        **NOT_DRIVEN,
        **dict.fromkeys(SILENT_CONTEXTS, _silent),
    )
    has_hashes = vllm_config.cache_config.enable_prefix_caching or any(part.hashes_blocks for part in config.parts)
    hasher = _hasher(release, hashed, vllm_config) if has_hashes else None
    manager = scheduler.kv_cache_manager
    return BuiltCore(core, scheduler, manager, manager.block_pool, hasher, runner.number_of)


# Attributes that EngineCore.__init__ sets, for what is not driven here.
NOT_DRIVEN = {
    "log_stats": False,
    "is_mm_encoder_only": False,
    "is_ec_consumer": True,
    "is_pooling_model": False,
    "mm_receiver_cache": None,
    "_weight_version": "",
}


def _hasher(release: VllmRelease, block_len: int, vllm_config: Any) -> Callable[[Any], Any]:
    """The function that hashes the blocks of a request, as EngineCore.__init__ makes it."""
    make = release.code("get_request_block_hasher")
    lookahead = {"num_hash_lookahead_tokens": getattr(vllm_config, "num_hash_lookahead_tokens", 0)}
    more = {name: value for name, value in lookahead.items() if name in parameters(make)}
    hasher: Callable[[Any], Any] = make(block_len, release.code("sha256"), **more)
    return hasher


def _vllm_config(release: VllmRelease, arguments: Arguments, transfers: Any) -> Any:
    scheduling = arguments["SchedulerConfig"]
    whole = release.make(
        "VllmConfig",
        model_config=release.model_config,
        scheduler_config=release.make("SchedulerConfig", **scheduling),
        cache_config=release.make("CacheConfig", **arguments["CacheConfig"]),
        device_config=release.make("DeviceConfig", device="cpu"),
        kv_transfer_config=transfers,
        **arguments["VllmConfig"],
    )
    whole.scheduler_config.async_scheduling = scheduling["async_scheduling"]  # the CPU platform has switched it off
    whole.scheduler_config.disable_hybrid_kv_cache_manager = bool(transfers and transfers.kv_connector == LMCACHE)
    whole.model_config.max_model_len = scheduling["max_model_len"]
    whole.cache_config.num_gpu_blocks = arguments["KVCacheConfig"]["num_blocks"]
    return whole


def _scheduler(release: VllmRelease, *, vllm_config: Any, **arguments: Any) -> Any:
    kind = release.code("AsyncScheduler" if vllm_config.scheduler_config.async_scheduling else "Scheduler")
    outputs = release.code("StructuredOutputManager")(vllm_config)
    wanted = {"vllm_config": vllm_config, "structured_output_manager": outputs, "log_stats": False, **arguments}
    return kind(**known(wanted, release.code("Scheduler")))


def _groups(release: VllmRelease, config: VllmConfig, arguments: Arguments) -> Any:
    """The groups of layers, as the release's planner would make them of a model with such layers."""
    dtype = release.torch.float32
    specs = []
    for window, size, has_states in config.groups:
        if has_states:
            of_states = {"shapes": ((1,),), "dtypes": (dtype,), **arguments["MambaSpec"]}
            spec = release.make("MambaSpec", block_size=size, **of_states)
        else:
            layer = {**LAYER, "block_size": size, "dtype": dtype}
            windowed = {} if window is None else {"sliding_window": window}
            spec = release.make("FullAttentionSpec" if window is None else "SlidingWindowSpec", **layer, **windowed)
        specs.append(spec)
    groups = [
        release.make("KVCacheGroupSpec", layer_names=[f"{i}"], kv_cache_spec=spec) for i, spec in enumerate(specs)
    ]
    return release.make("KVCacheConfig", kv_cache_groups=groups, **arguments["KVCacheConfig"])


@contextmanager
def _silent(*args: Any, **kwargs: Any) -> Iterator[None]:
    yield None
