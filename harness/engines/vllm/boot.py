"""The import of one release of vLLM into this process, and where its parts are in each release."""

import importlib
import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any, get_args

from swarden.harness.core.releases import parsed
from swarden.harness.engines.vllm.layers import MAX_CONTEXT_LEN
from swarden.harness.engines.vllm.stand_ins import ABSENT
from swarden.harness.kit.released_code import BootedRelease, Feature, ReleasedCode, parameters, quiet_import
from swarden.harness.kit.tags import VOCABULARY

P2P = "distributed.kv_transfer.kv_connector.v1.mooncake.mooncake_connector"
MOONCAKE = "distributed.kv_transfer.kv_connector.v1.mooncake.store"
# The classes and functions by module of the package.
MODULES: Mapping[str, str] = {
    "v1.engine.core": "EngineCore",
    "v1.core.sched.scheduler": "Scheduler",
    "v1.core.sched.async_scheduler": "AsyncScheduler",
    "v1.core.kv_cache_coordinator": "HybridKVCacheCoordinator",
    "v1.core.single_type_kv_cache_manager": "FullAttentionManager",
    "v1.core.sched.interface": "PauseState",
    "v1.core.block_pool": "BlockPool",
    "v1.request": "Request",
    "v1.engine": "FinishReason EngineCoreRequest",
    "v1.engine.parallel_sampling": "ParentRequest",
    "v1.engine.output_processor": "OutputProcessor RequestOutputCollector",
    "sampling_params": "RequestOutputKind SamplingParams StructuredOutputsParams",
    "lora.request": "LoRARequest",
    "v1.structured_output": "StructuredOutputManager",
    "v1.structured_output.backend_types": "StructuredOutputGrammar",
    "v1.structured_output.utils": "apply_grammar_bitmask",
    "v1.kv_cache_interface": (
        "KVCacheConfig KVCacheGroupSpec FullAttentionSpec SlidingWindowSpec MambaSpec KVCacheTensor"
    ),
    "v1.core.kv_cache_utils": (
        "resolve_kv_cache_block_sizes get_request_block_hasher init_none_hash get_group_id "
        "make_block_hash_with_group_id get_block_hash maybe_convert_block_hash"
    ),
    "utils.hashing": "sha256",
    "v1.outputs": "ModelRunnerOutput KVConnectorOutput DraftTokenIds",
    "distributed.kv_transfer.kv_connector.v1.base": "KVConnectorRole",
    "distributed.kv_transfer.kv_connector.factory": "KVConnectorFactory",
    "distributed.kv_transfer.kv_connector.utils": "KVOutputAggregator",
    "config": (
        "KVTransferConfig ModelConfig CacheConfig SchedulerConfig "
        "SpeculativeConfig ParallelConfig DeviceConfig VllmConfig KVEventsConfig"
    ),
    "v1.kv_offload.base": (
        "OffloadingWorker make_offload_key TransferResult get_offload_block_hash get_offload_group_idx"
    ),
    "distributed.kv_transfer.kv_connector.v1.simple_cpu_offload_connector": "SimpleCPUOffloadConnector",
    "v1.simple_kv_offload.manager": "SimpleCPUOffloadScheduler",
    P2P: "MooncakeConnector MooncakeConnectorWorker",
    f"{MOONCAKE}.connector": "MooncakeStoreConnector",
    f"{MOONCAKE}.worker": "LookupKeyClient",
    "v1.kv_offload.tiering.factory": "SecondaryTierFactory",
    "v1.kv_offload.tiering.fs.manager": "FileSystemTierManager",
    "v1.kv_offload.tiering.spec": "TieringOffloadingSpec",
    "model_executor.models": "ModelRegistry",
    "config.cache": "MambaCacheMode",
    "engine.arg_utils": "EngineArgs",
    "v1.executor.abstract": "Executor",
    "envs": "disable_envs_cache",
    "v1.core.sched.output": "SchedulerOutput",
}
NIXL = "distributed.kv_transfer.kv_connector.v1.nixl"
# The name of each part, and its places in the releases, newest first.
PLACES: Mapping[str, tuple[str, ...]] = {
    **{name: (f"{module}:{name}",) for module, names in MODULES.items() for name in names.split()},
    "NixlWorker": (f"{NIXL}.pull_worker:NixlPullConnectorWorker", f"{NIXL}.worker:NixlConnectorWorker"),
    "NixlPushWorker": (f"{NIXL}.push_worker:NixlPushConnectorWorker",),
}
NEEDS_NO_GPU = {
    "VLLM_TARGET_DEVICE": "cpu",
    "VLLM_LOGGING_LEVEL": "CRITICAL",
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_VERBOSITY": "error",
    "TORCH_CPP_LOG_LEVEL": "ERROR",
    "OMP_NUM_THREADS": "1",  # read by a library of threads that kernels of the CPU load beside that of torch
    "NUMBA_NUM_THREADS": "1",  # else numba, which proposes n-grams, gives torch more threads, too
}
RUNNER_SWITCH = "VLLM_USE_V2_MODEL_RUNNER"  # read when a scheduler is built
ARCHITECTURE = "SwardenForCausalLM"
MODEL = {
    "architectures": [ARCHITECTURE],
    "model_type": "llama",
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "num_hidden_layers": 2,
    "vocab_size": VOCABULARY,
    "max_position_embeddings": MAX_CONTEXT_LEN,
    "torch_dtype": "float32",
    "bos_token_id": 1,
    "eos_token_id": 2,
}

UNCACHED = {"blocks_without_hash", "blocks_to_evict_first"}  # the list of free_blocks, in the releases that have one
FEATURES: Mapping[str, Feature] = {
    "second_runner": Feature(
        "the scheduler can talk to model runner V2: a resumed request is a new one, and preempted ones are told",
        lambda release: hasattr(release.code("VllmConfig"), "use_v2_model_runner"),
    ),
    "second_runner_ngrams": Feature(
        "model runner V2 verifies drafts of n-grams",
        lambda release: hasattr(release.code("SpeculativeConfig"), "use_ngram"),
    ),
    "all_states": Feature(
        'mamba_cache_mode can be "all": a state is kept for each block; since then, it is always "align"',
        lambda release: "all" in get_args(release.code("MambaCacheMode")),
    ),
    "wide_states": Feature(
        "a block of states can have more tokens than a pass",
        lambda release: (
            "max_num_batched_tokens" not in release.code("VllmConfig").validate_block_size.__code__.co_names
        ),
    ),
    "match_unit": Feature(
        "a prefix of a model with states can end inside a block in the cache; 0.27.1 cannot look it up with a window",
        lambda release: hasattr(release.code("HybridKVCacheCoordinator"), "_align_cacheable"),
    ),
    "uncached_first": Feature(
        "blocks without a hash are taken before cached ones, also if they were freed later",
        lambda release: bool({*release.code("BlockPool").free_blocks.__code__.co_varnames} & UNCACHED),
    ),
    "watermark": Feature(
        "a share of the blocks is kept free at admission",
        lambda release: "watermark" in parameters(release.code("SchedulerConfig")),
    ),
    "retention_interval": Feature(
        "groups with a window keep only a part of their cached blocks",
        lambda release: "prefix_cache_retention_interval" in parameters(release.code("KVCacheConfig")),
    ),
    "streaming_input": Feature(
        "a request can wait for further input", lambda release: "resumable" in parameters(release.code("Request"))
    ),
    "offloading": Feature(
        "the offloading connector copies the blocks of all groups, by an OffloadingWorker",
        lambda release: release.code("OffloadingWorker") is not None,
    ),
    "simple_offload": Feature(
        "a second connector copies single blocks to CPU memory",
        lambda release: release.code("SimpleCPUOffloadConnector") is not None,
    ),
    "simple_reset": Feature(
        "the connector that copies single blocks can be reset",
        lambda release: hasattr(release.code("SimpleCPUOffloadScheduler"), "reset"),
    ),
    "steps_for_stores": Feature(
        "an engine core without requests makes steps until the copies of single blocks to CPU memory have ended",
        lambda release: "has_pending_push_work" in vars(release.code("SimpleCPUOffloadConnector")),
    ),
    "cpu_memory": Feature(
        "a connector that is driven here copies blocks to CPU memory",
        lambda release: (release.code("OffloadingWorker") or release.code("SimpleCPUOffloadConnector")) is not None,
    ),
    "disk": Feature(
        "the offloading connector can have a file system as the second tier behind CPU memory",
        lambda release: None not in (release.code("OffloadingWorker"), release.code("FileSystemTierManager")),
    ),
    "mooncake_store": Feature(
        "a connector saves blocks in a store by their hashes, and looks them up in the background",
        lambda release: hasattr(release.code("LookupKeyClient"), "discard"),
    ),
    "lmcache": Feature(
        "LMCache 0.5.6 is beside it, whose connector was tried with releases from 0.33.0 on",
        lambda release: find_spec("lmcache") is not None and release.version >= parsed("0.33.0"),
    ),
    "mooncake_link": Feature(
        "a connector whose prefill side writes the blocks that the decode side asks for, also of several groups",
        lambda release: hasattr(release.code("MooncakeConnectorWorker"), "_logical_to_kernel_block_ids"),
    ),
    "pushes": Feature(
        "a connector whose prefill side writes the blocks of the decode side",
        lambda release: release.code("NixlPushWorker") is not None,
    ),
    "partial_blocks": Feature(
        "the first tokens of a block are cached, if another group has smaller blocks",
        lambda release: hasattr(release.code("FullAttentionManager"), "_cache_partial_tail_block"),
    ),
    "grammars": Feature(
        "a grammar that cannot be compiled ends its request alone",
        lambda release: "grammar_compile_error_reqs" in release.code("Scheduler").__init__.__code__.co_names,
    ),
    "failed_requests": Feature(
        "a connector names the requests whose loads failed; before, their blocks, which only one group can have",
        lambda release: "failed_recving" in parameters(release.code("KVConnectorOutput")),
    ),
}


class VllmRelease(ReleasedCode):
    """The release of vLLM that is imported in this process."""

    def __init__(self, version: str) -> None:
        super().__init__(version, "vllm", PLACES, FEATURES)

    def make(self, name: str, **arguments: Any) -> Any:
        """An object of a part, from those of the arguments that this release has."""
        kind = self.code(name)
        names = parameters(kind)  # not of __init__, which pydantic replaces
        return kind(**{name: value for name, value in arguments.items() if name in names})

    @cached_property
    def model_config(self) -> Any:
        """The configuration of a model without weights; `max_model_len` is that of the engine built last."""
        self.code("ModelRegistry").register_model(ARCHITECTURE, self._model())
        with tempfile.TemporaryDirectory(prefix="swarden-") as folder:
            Path(folder, "config.json").write_text(json.dumps(MODEL))
            wanted = {"dtype": "float32", "seed": 0, "skip_tokenizer_init": True, "max_model_len": MAX_CONTEXT_LEN}
            return self.make("ModelConfig", model=folder, **wanted)

    def _model(self) -> type:
        """A class with the methods by which the registry of models knows a model that generates text."""

        def unused(self: Any, *args: Any, **kwargs: Any) -> None: ...

        def init(self: Any, *, vllm_config: Any, prefix: str = "") -> None: ...

        def forward(self: Any, input_ids: Any, positions: Any) -> None: ...

        methods = dict.fromkeys(("embed_input_ids", "get_input_embeddings", "compute_logits"), unused)
        return type(ARCHITECTURE, (self.torch.nn.Module,), {"__init__": init, "forward": forward, **methods})


def _load(version: str, folders: Sequence[Path]) -> VllmRelease:
    with quiet_import(folders, ABSENT, NEEDS_NO_GPU):
        importlib.import_module("vllm.v1.engine.core")
        vars(sys.modules["vllm.config.vllm"])["HAS_TRITON"] = True  # the kernels of model runner V2 want triton
        release = VllmRelease(version)
        release.code("init_none_hash")(release.code("sha256"))
    return release


boot = BootedRelease("vllm", _load, "vllm", PLACES)
