"""A tiny model in a release's own worker: its model runner, attention backend and KV pools, in this process."""

import importlib
import os
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import redirect_stderr
from functools import cache, partial
from io import StringIO
from pathlib import Path
from typing import Any
from unittest import mock

from swarden.harness.core.errors import InvalidConfig
from swarden.harness.engines.sglang.boot import SglangRelease
from swarden.harness.engines.sglang.config import SglangConfig
from swarden.harness.engines.sglang.memory import KVShape, kv_pool
from swarden.harness.engines.sglang.options import DEVICE
from swarden.harness.engines.sglang.pools import SglangMemory, sub_pools
from swarden.harness.kit.checkpoints import MAX_CONTEXT_LEN, SIZES, as_read, logprobs_without_cache, written

LAGUNA = "tiny-laguna"
FULL, WINDOWED = "full_attention", "sliding_attention"
KINDS = (FULL, WINDOWED) * 2
OF_LAGUNA: Mapping[str, Any] = {
    "layer_types": [*KINDS],
    "num_hidden_layers": len(KINDS),
    "mlp_layer_types": ["dense"] * len(KINDS),
    "num_experts": 4,
    "moe_intermediate_size": 32,
    "shared_expert_intermediate_size": 32,
}
MOST = {"max_running_requests": 16, "max_context_len": MAX_CONTEXT_LEN, "chunk_len": 1024, "full_pages": 4096}
SERVER_ARGS: Mapping[str, Any] = {
    "device": DEVICE,
    "attention_backend": "torch_native",
    "sampling_backend": "pytorch",
    "dtype": "float32",
    "skip_tokenizer_init": True,
    "disable_cuda_graph": True,
    "disable_overlap_schedule": True,
    "max_total_tokens": 2 * MAX_CONTEXT_LEN,  # with the requests, the size of the largest batch
    "max_running_requests": MOST["max_running_requests"],
    "chunked_prefill_size": MOST["chunk_len"],
}
ROTARY = "sglang.srt.layers.rotary_embedding.base"  # asks vLLM for its kernel, except on a CPU
ALONE = {"gpu_id": 0, "world_rank": 0, "dp_rank": None}
LOST = 77.0  # in memory whose KV was lost; a masked position may be read, so it is a number


def write(window: int, folder: Path) -> Any:
    """Write the checkpoint; returns the model as transformers has it.  Its windows include the token itself."""
    return written("LagunaConfig", {**OF_LAGUNA, "sliding_window": window}, folder)


class RealModel:
    """The worker of a release with the model, for one engine after the other."""

    def __init__(self, release: SglangRelease) -> None:
        self.torch, self._release = release.torch, release
        on_cpu = mock.patch(f"{ROTARY}._is_cpu", True)  # while the model is made
        progress = redirect_stderr(StringIO())
        with on_cpu, progress, tempfile.TemporaryDirectory(prefix="swarden-") as folder:
            self._without_cache = write(MAX_CONTEXT_LEN, Path(folder))
            args = release.code("ServerArgs")(model_path=folder, **SERVER_ARGS)
            ranks = release.code("SpawnRanks")(**ALONE)
            self._context = release.code("create_context")(args, role="scheduler", ranks=ranks)
            with release.code("use_context")(self._context):
                self._worker = self._made(args)
        self.logprobs_without_cache = partial(logprobs_without_cache, self._without_cache)
        self._runner = self._worker.model_runner
        layers = self._runner.model.model.layers
        self._windowed = [layers[place].self_attn.attn for place, kind in enumerate(KINDS) if kind == WINDOWED]

    def serve(self, config: SglangConfig, memory: SglangMemory) -> None:
        """Compute for an engine with this memory from now on; a run depends on no earlier one."""
        runner, window = self._runner, config.sliding_window
        kinds = KINDS if config.has_window else (FULL,) * len(KINDS)
        self._layers = [[place for place, name in enumerate(kinds) if name == kind] for kind in (FULL, WINDOWED)]
        self.names = [[f"layers.{place}" for place in layers] for layers in self._layers]
        full, windowed = self._layers
        shape = KVShape(full, windowed, SIZES["num_key_value_heads"], SIZES["head_dim"])
        runner.token_to_kv_pool = kv_pool(self._release, config, shape)
        if memory.mapping is not None:
            runner.token_to_kv_pool.register_mapping(memory.mapping)
        runner.req_to_token_pool, runner.token_to_kv_pool_allocator = memory.rows, memory.allocator
        runner.page_size, runner.is_hybrid_swa = config.page_size, config.has_window
        for layer in self._windowed:
            layer.sliding_window_size = -1 if window is None else window
        self._without_cache.config.sliding_window = MAX_CONTEXT_LEN if window is None else window + 1
        with self._release.code("use_context")(self._context):
            runner.init_kv_index_translator()
            runner.init_attention_backends()
        self.lose()

    def lose(self) -> None:
        """Lose all KV."""
        for pool in sub_pools(self._runner.token_to_kv_pool):
            for memory in (*pool.k_buffer, *pool.v_buffer):
                memory.fill_(LOST)

    def compute(self, batch: Any, tokens: Sequence[int]) -> list[int]:
        """Run the pass of a batch with these tokens; returns the tokens that are sampled."""
        batch.input_ids = self.torch.tensor(as_read(tokens))
        with self._release.code("use_context")(self._context), self.torch.inference_mode():
            sampled: list[int] = self._worker.forward_batch_generation(batch).next_token_ids.tolist()
        return sampled

    def kv(self, component: int, slots: Sequence[int]) -> list[Any]:
        """The KV in these slots of a pool: a row for each slot, of each layer."""
        pool = self._runner.token_to_kv_pool
        buffers = [(pool.get_key_buffer(layer), pool.get_value_buffer(layer)) for layer in self._layers[component]]
        at = self.torch.tensor(slots)
        return [self.torch.cat([keys[at].flatten(1), values[at].flatten(1)], 1) for keys, values in buffers]

    def _made(self, args: Any) -> Any:
        """The worker; it has the groups of one rank, and no pools that are used."""
        distributed = importlib.import_module("torch.distributed")
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")  # each group opens a port
        distributed.init_process_group("gloo", store=distributed.HashStore(), world_size=1, rank=0)
        self._release.code("init_groups")(backend="gloo", dist_init_method="", server_args=args, gpu_id=0)
        worker = self._release.code("TpModelWorker")(args, gpu_id=0, nccl_port=0, random_seed=0)
        worker.alloc_memory_pool()
        worker.init_attention_backends()
        worker.init_cuda_graphs()
        return worker


real_model = cache(RealModel)  # the model of this process: it takes seconds


def check(release: SglangRelease, config: SglangConfig) -> None:
    """Raise InvalidConfig for settings whose passes the model does not run, and for a release that runs none here."""
    if release.code("create_context") is None:
        raise InvalidConfig(f"model is {LAGUNA}, want the stand-in for {release.text}")
    for capability in config.capabilities:
        name = type(capability).__struct_fields__[0]
        raise InvalidConfig(f"{name} is {getattr(capability, name)!r}, want its default with model {LAGUNA}")
    for name, most in MOST.items():
        if (value := getattr(config, name)) > most:
            raise InvalidConfig(f"{name} is {value}, want at most {most} with a model")
