"""The import of one release of SGLang into this process, and where its parts are in each release."""

import importlib
from collections.abc import Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from types import ModuleType
from typing import Any

from swarden.harness.engines.sglang import stand_ins
from swarden.harness.kit.lockstep import replace_threads
from swarden.harness.kit.ranks import Ranks, replace_collectives
from swarden.harness.kit.released_code import BootedRelease, Feature, ReleasedCode, optional, parameters, quiet_import
from swarden.harness.kit.stand_ins import replace_triton
from swarden.harness.kit.streams import Devices

# The classes and functions by module of sglang.srt.
MODULES: Mapping[str, str] = {
    "managers.scheduler": "Scheduler",
    "managers.schedule_batch": "ScheduleBatch Req",
    "managers.schedule_policy": "SchedulePolicy",
    "server_args": "ServerArgs",
    "runtime_context": "get_parallel get_context use_context create_context SpawnRanks",
    "managers.tp_worker": "TpModelWorker",
    "disaggregation.utils": "DisaggregationMode KVClassType",
    "disaggregation.base.conn": "KVArgs KVPoll",
    "disaggregation.common.conn": "CommonKVManager",
    "disaggregation.fake.conn": "FakeKVManager FakeKVSender FakeKVReceiver",
    "disaggregation.decode": "DecodeReqToTokenPool DecodeTransferQueue",
    "mem_cache.chunk_cache": "SWAChunkCache ChunkCache",
    "sampling.sampling_params": "SamplingParams",
    "layers.attention.base_attn_backend": "AttentionBackend",
    "speculative.spec_info": "SpeculativeAlgorithm",
    "speculative.ngram_info": "NgramVerifyInput",
    "managers.overlap_utils": "FutureMap",
    "environ": "envs",
    "mem_cache.base_prefix_cache": "EvictParams",
    "mem_cache.events": "KVCacheEventRecorder",
    "mem_cache.utils": "get_hash_str hash_str_to_int64",
    "disaggregation.kv_events": "namespaced_block_hash kv_event_namespace_seed StorageMedium",
    "mem_cache.cache_init_params": "CacheInitParams",
    "mem_cache.memory_pool": "ReqToTokenPool HybridReqToTokenPool HybridLinearKVPool MHATokenToKVPool",
    "mem_cache.swa_memory_pool": "SWAKVPool",
    "mem_cache.mamba_radix_cache": "MambaRadixCache",
    "mem_cache.swa_radix_cache": "SWARadixCache",
    "mem_cache.radix_cache": "RadixCache",
    "mem_cache.hiradix_cache": "HiRadixCache",
    "mem_cache.unified_radix_cache": "UnifiedRadixCache",
    "mem_cache.hicache_storage": "HiCacheFile PoolName",
    "mem_cache.storage.backend_factory": "StorageBackendFactory",
    "mem_cache.unified_cache.unified_tree_core": "UnifiedTreeNode UnifiedTreeCore",
    "mem_cache.rust_tree_core.adapter": "RustUnifiedTreeCore",
    "session.session_controller": "SessionController",
    "constrained.grammar_manager": "GrammarManager",
    "constrained.base_grammar_backend": "BaseGrammarBackend BaseGrammarObject",
    "speculative.spec_utils": "GrammarTree build_grammar_vocab_mask prepare_mamba_track_for_verify",
    "configs.mamba_utils": "Mamba2StateShape Mamba2StateDType Mamba2CacheParams",
    "session.streaming_session": "StreamingSession",
    "managers.scheduler_components.new_token_ratio_tracker": "NewTokenRatioTracker",
}
# The name of each part, and its places in the releases, newest first.
PLACES: Mapping[str, tuple[str, ...]] = {
    **{name: (f"{module}:{name}",) for module, names in MODULES.items() for name in names.split()},
    "publish_server_args": ("server_args:set_global_server_args_for_scheduler", "server_args:set_global_server_args"),
    "init_groups": ("distributed.bootstrap:_init_parallel_groups",),
    "commit_states": ("speculative.spec_utils:commit_mamba_states_after_verify",),
    "MiniMaxSparseKVPool": ("mem_cache.memory_pool:MiniMaxSparseKVPool",),
    "OffloadManager": ("disaggregation.decode_kvcache_offload_manager:DecodeKVCacheOffloadManager",),
    "assign_rows": (
        "mem_cache.allocation:assign_req_to_token_pool_func",
        "speculative.triton_ops.cache_locs:assign_req_to_token_pool_func",
    ),
    "Allocator": (
        "mem_cache.allocator.swa:SWATokenToKVPoolAllocator",
        "mem_cache.swa_memory_pool:SWATokenToKVPoolAllocator",
    ),
    "FullAllocator": ("mem_cache.allocator.token:TokenToKVPoolAllocator", "mem_cache.allocator:TokenToKVPoolAllocator"),
    "PagedAllocator": (
        "mem_cache.allocator.paged:PagedTokenToKVPoolAllocator",
        "mem_cache.allocator:PagedTokenToKVPoolAllocator",
    ),
    "ComponentType": (
        "mem_cache.unified_cache.component_type:ComponentType",
        "mem_cache.unified_cache_components:ComponentType",
    ),
    "TreeCores": ("mem_cache.unified_cache:tree_core_registry",),
    "WeightUpdater": ("managers.scheduler_components.weight_updater:SchedulerWeightUpdaterManager",),
    "DPAttnAdapter": ("managers.scheduler_components.dp_attn:SchedulerDPAttnAdapter",),
    "BatchResultProcessor": ("managers.scheduler_components.batch_result_processor:SchedulerBatchResultProcessor",),
}
KERNEL_MODULES = ("mem_cache.allocator", "mem_cache.allocator.paged", "mem_cache.triton_ops.allocator")
THREAD_MODULES = ("managers.cache_controller", "mem_cache.hybrid_cache.hybrid_cache_controller")
STREAM_MODULES = (*THREAD_MODULES, "mem_cache.l2_transfer", "mem_cache.memory_pool_host", "mem_cache.pool_host.base")
HASH_MODULES = ("mem_cache.cpp_utils.native_hash",)
PINNING_MODULES = ("managers.schedule_batch",)
NATIVE_COPIES = "SGLANG_NATIVE_MOVE_KV_CACHE"  # without a GPU kernel
NEEDS_NO_GPU = {
    "HF_HUB_OFFLINE": "1",
    NATIVE_COPIES: "1",
    "SGLANG_ENABLE_RANK_CONSENSUS_CHECKER": "1",
    "SGLANG_IS_IN_CI": "0",
    "TRANSFORMERS_VERBOSITY": "error",
}


FEATURES: Mapping[str, Feature] = {
    "full_pool_bounds_requests": Feature(
        "a request may be as long as the full pool; before, as the smaller pool (ModelRunner.max_token_pool_size)",
        lambda release: release.version >= (0, 5, 11),
    ),
    "token_arrays": Feature("token ids are array('q'); before, lists", lambda release: release.version >= (0, 5, 13)),
    "first_row_is_padding": Feature(
        "row 0 of the request table is never handed out", lambda release: min(_small_table(release).free_slots) == 1
    ),
    "host_tier": Feature(
        "a hierarchical cache for full attention with a window",
        lambda release: hasattr(release.code("UnifiedRadixCache"), "init_hicache"),
    ),
    "small_host_pools": Feature(
        "a host pool may be smaller than its device pool; before, HostKVCache asserts that it is larger",
        lambda release: release.version >= (0, 5, 17),
    ),
    "decode_tree": Feature(
        "a decode side may have a prefix tree, and names the length that it need not get",
        lambda release: hasattr(release.code("FakeKVSender"), "pop_decode_prefix_len"),
    ),
    "decode_tree_with_window": Feature(
        # 0.5.18, kv_cache_builder.py:261; 0.5.19 needs SGLANG_ENABLE_UNIFIED_RADIX_TREE (:259)
        "also beside a window, whose pages are transferred anew; before, a server refuses it",
        lambda release: release.version >= (0, 5, 19),
    ),
    "connector": Feature(
        "a Mooncake connector whose states are lists by component; before, it was not looked at",
        lambda release: release.version >= (0, 5, 12),
    ),
    "decode_host_tier": Feature(
        "a decode side loads the part of a prompt that its tree has on the host; before 0.5.17 it was not looked at",
        lambda release: (
            release.version >= (0, 5, 17)
            and hasattr(release.code("DecodeTransferQueue"), "_process_hicache_local_restores")
        ),
    ),
    "decode_offload": Feature(
        "a decode side may write its KV to a storage, and keeps the pages of a request until it has ended",
        lambda release: release.code("OffloadManager") is not None and release.version >= (0, 5, 17),
    ),
    "storage": Feature(
        "a storage behind the host in the tree of all models; before, only for full attention, and not looked at",
        lambda release: hasattr(release.code("UnifiedRadixCache"), "prefetch_from_storage"),
    ),
    "sidecar": Feature(
        # 0.5.19 to 0.5.21: HostPoolGroup reads can_use_write_back_jit of MHATokenToKOnlyPoolHost, which has none
        "a host tier for sparse attention, whose index keys lie beside KV; from 0.5.19 to 0.5.21 such a server fails",
        lambda release: (0, 5, 16) <= release.version < (0, 5, 19) or release.version >= (0, 5, 22),
    ),
    "sized_prefetches": Feature(
        "a prefetch gets its host memory once the storage has answered; before, for the whole prompt at its begin",
        lambda release: hasattr(release.code("UnifiedRadixCache"), "_alloc_prefetch_aux_staging"),
    ),
    "streaming_sessions": Feature(
        "sessions with one turn at a time, which forget an aborted turn; before, an aborted turn stays in its session",
        lambda release: release.code("StreamingSession") is not None,
    ),
    "state_pool": Feature(
        "one tree for full attention, a window and recurrent states; a prefill names the states to clear and to copy",
        lambda release: "mamba_cow_src_indices" in vars(release.code("ScheduleBatch")),
    ),
    "tracked_states": Feature(
        "a request keeps states of its prefixes in buffers of its own; before, they were not looked at",
        lambda release: "enable_mamba_extra_buffer_lazy" in parameters(release.code("HybridReqToTokenPool")),
    ),
    "state_host_tier": Feature(
        "a hierarchical cache for recurrent states in the tree of the others; before, it was not looked at",
        lambda release: release.version >= (0, 5, 17),
    ),
    "states_after_drafts": Feature(
        "NGRAM commits the states after accepted drafts with the functions of all algorithms; before, not looked at",
        lambda release: release.code("commit_states") is not None and release.version >= (0, 5, 17),
    ),
    "one_tree": Feature(
        "models with full attention alone have the tree of the others; before, a RadixCache or HiRadixCache",
        lambda release: release.version >= (0, 5, 19),
    ),
    "rust_core": Feature(
        "a tree core in Rust that can be told from its ids; before, the ids of locks are small numbers in one core",
        lambda release: release.version >= (0, 5, 22) and release.code("RustUnifiedTreeCore") is not None,
    ),
    "kv_event_namespaces": Feature(
        "KV events can tell namespaces apart; before, equal tokens of two namespaces have one hash",
        lambda release: "dynamo_kv_event_format" in parameters(release.code("CacheInitParams")),
    ),
    "overlapped_drafts": Feature(
        "a decode takes the slots of drafts for two passes; before, NgramVerifyInput does for one, inside the launch",
        lambda release: not hasattr(release.code("NgramVerifyInput"), "prepare_for_verify"),
    ),
    "verification_ends_its_reads": Feature(
        # AttentionBackend.shared_read_ends (0.5.18, base_attn_backend.py:131); 0.5.17, decode_cuda_graph_runner.py:1201
        "a verification of drafts publishes the end of its reads, as a decode does; before, that of DFlash alone",
        lambda release: hasattr(release.code("AttentionBackend"), "shared_read_ends"),
    ),
    "grammars": Feature(
        "drafts are checked by the grammar tree of all algorithms; before, it was not looked at",
        lambda release: release.code("build_grammar_vocab_mask") is not None,
    ),
    "finishing_requests_left_out": Feature(
        "a pass leaves out the requests that the pass in flight ends; before, each of them is decoded once more",
        lambda release: hasattr(release.code("Scheduler"), "_reqs_finishing_inflight"),
    ),
    "batch_plan": Feature(
        "get_next_batch_to_run takes the running batch and returns a plan",
        lambda release: "running_batch" in parameters(release.code("Scheduler").get_next_batch_to_run),
    ),
}


def _small_table(release: "SglangRelease") -> Any:
    return release.code("ReqToTokenPool")(size=2, max_context_len=1, device="cpu", enable_memory_saver=False)


class SglangRelease(ReleasedCode):
    """The release of SGLang that is imported in this process."""

    def __init__(self, version: str) -> None:
        super().__init__(version, "sglang.srt", PLACES, FEATURES)

    def is_unified(self, tree: Any) -> bool:
        kind = self.code("UnifiedRadixCache")
        return kind is not None and isinstance(tree, kind)

    @cached_property
    def trees(self) -> tuple[str, ...]:
        """The prefix trees for a window that this release ships; `tree` "default" is the first one."""
        return tuple(name for name in ("SWARadixCache", "UnifiedRadixCache") if self.code(name) is not None)


def _load(version: str, folders: Sequence[Path]) -> SglangRelease:
    with quiet_import(folders, stand_ins.ABSENT, NEEDS_NO_GPU):
        replace_triton()
        replace_collectives(importlib.import_module("torch.distributed"))
        _mark_decisions(optional("sglang.srt.utils.rank_consensus_checker"))
        importlib.import_module("sglang.srt.managers.scheduler")
        stand_ins.replace_allocator_kernels(_modules(KERNEL_MODULES))
        stand_ins.replace_devices(_modules(STREAM_MODULES), Devices)
        replace_threads(_modules(THREAD_MODULES))
        stand_ins.replace_hashes(_modules(HASH_MODULES))
        stand_ins.unpin_memory(_modules(PINNING_MODULES))
    return SglangRelease(version)


def _mark_decisions(checker: Any) -> None:
    """Let its decorator only mark a method that all ranks call alike; its `swarden_checked` makes one that says so."""
    if checker is None:
        return
    checks = checker.rank_consensus

    def agree(text: str, *args: Any) -> None:
        if Ranks.current is not None:
            Ranks.current.agree(text % args)

    def mark(method: Any = None, **selectors: Any) -> Any:
        if method is None:
            return partial(mark, **selectors)
        method.swarden_checked = lambda: checks(**selectors)(method)
        return method

    checker.assert_same, checker.rank_consensus = agree, mark


def _modules(names: tuple[str, ...]) -> list[ModuleType]:
    """Those of the modules that this release has."""
    return [module for name in names if (module := optional(f"sglang.srt.{name}")) is not None]


boot = BootedRelease("sglang", _load, "sglang.srt", PLACES)
