"""A tiny model behind the executor of a release: its own worker, model runner, kernels and KV memory."""

import copy
import dataclasses
import importlib
import os
import tempfile
import warnings
from collections.abc import Mapping
from contextlib import ExitStack
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

from swarden.harness.engines.vllm.boot import RUNNER_SWITCH, VllmRelease
from swarden.harness.engines.vllm_cpu import kernels
from swarden.harness.engines.vllm_cpu.checkpoint import MODELS, OF_WORKER, STATE, Layers, write
from swarden.harness.kit.checkpoints import as_read, logprobs_without_cache

ON_CPU = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # the worker runs in this process
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_SSM_CONV_STATE_LAYOUT": "SD",
    RUNNER_SWITCH: "0",
}
# Of the release's modules, while a model is made.
REPLACED: Mapping[str, Any] = {
    # The worker of the CPU runs without triton, which schedulers for model runner V2 pretend to have.
    "vllm.config.vllm.HAS_TRITON": False,
    # The class of a model is inspected in another process, which does not have the release on its path.
    "vllm.model_executor.models.registry._run_in_subprocess": lambda inspect: inspect(),
}
KERNELS = "vllm.triton_utils.dispatcher"
LAYERS, MAMBA = "vllm.model_executor.layers.mamba", ("mamba_mixer2", "short_conv", "abstract")
COPIES = "vllm.v1.worker.mamba_utils"
NGRAMS = {"method": "ngram", "prompt_lookup_min": 1, "prompt_lookup_max": 2}
LOST = 77.0  # in memory whose KV was lost; a masked position may be read, so it is a number


class LayerMemory(NamedTuple):
    """The values that a layer keeps, as [block, slot, ...]; its keys lie packed for the kernels.

    Or a recurrent state: with one slot for the state after the last token computed in a block, or for the inputs that
    a convolution keeps one for each number of drafts that may be accepted.
    """

    name: str
    values: Any


class RealModel:
    """The executor of a release with one model, for one engine after the other."""

    def __init__(self, release: VllmRelease, model: str, layers: Layers) -> None:
        self.torch = release.torch
        # Memory that is read before it is written is NaN, and the same in each run.
        self.torch.use_deterministic_algorithms(True, warn_only=True)
        self._empty = release.code("SchedulerOutput").make_empty
        ngrams = {**NGRAMS, "num_speculative_tokens": layers.num_drafts}
        with ExitStack() as stack, warnings.catch_warnings():
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="swarden-"))
            for place, value in REPLACED.items():
                stack.enter_context(mock.patch(place, value))
            dispatcher = importlib.import_module(KERNELS)
            if not vars(dispatcher)["_registry"]:
                _replace_kernels(self.torch)
            else:  # a release wraps them again for each model
                stack.enter_context(mock.patch.object(dispatcher, "register_kernels", return_value=None))
            warnings.simplefilter("ignore")
            self.logprobs_without_cache = partial(logprobs_without_cache, write(model, layers, Path(folder)))
            os.environ.update(ON_CPU, VLLM_CACHE_ROOT=folder)  # nothing is kept beyond this process
            config = release.code("EngineArgs")(
                model=folder,
                dtype="float32",
                skip_tokenizer_init=True,
                enforce_eager=True,
                block_size=layers.block_len,
                enable_prefix_caching=layers.keeps_states or STATE not in layers.windows,
                **OF_WORKER,
                use_tqdm_on_load=False,
                speculative_config=ngrams if layers.num_drafts else None,
                **MODELS[model].arguments,
            ).create_engine_config()
            core = release.code("EngineCore")(config, release.code("Executor").get_class(config), log_stats=False)
        release.code("disable_envs_cache")()  # the stand-in of a later run may have model runner V2
        self._executor = core.model_executor
        self._num_drafts = layers.num_drafts
        self.runner = self._executor.driver_worker.worker.model_runner
        groups = self.runner.kv_cache_config.kv_cache_groups
        self.groups = [[memory for name in group.layer_names for memory in self._memories(name)] for group in groups]

    def restart(self) -> None:
        """Forget the requests of the engine before, and all KV: a run depends on no earlier one."""
        self.runner.execute_model_state = None  # the state of a pass whose run has ended before it was sampled
        output = self._empty()
        output.finished_req_ids = set(self.runner.requests)
        self._executor.execute_model(output)
        self.runner.mamba_state_idx.clear()
        batch = self.runner.input_batch
        array: Any = type(batch.num_tokens_no_spec)
        for value in vars(batch).values():
            if isinstance(value, array):
                value.fill(0)
        batch.block_table.clear()
        self.lose()

    def lose(self) -> None:
        """Lose all KV."""
        for group in self.groups:
            for layer in group:
                kv = self._kv(layer.name)
                for memory in [kv] if isinstance(kv, self.torch.Tensor) else kv:
                    memory.fill_(LOST)

    def execute(self, output: Any) -> None:
        """Run the pass of a scheduler's output; the model reads a token modulo its vocabulary."""
        output = copy.copy(output)
        output.scheduled_new_reqs = [_with_tokens(new) for new in output.scheduled_new_reqs]
        cached = output.scheduled_cached_reqs = copy.copy(output.scheduled_cached_reqs)
        cached.all_token_ids = {rid: as_read(tokens) for rid, tokens in cached.all_token_ids.items()}
        self._executor.execute_model(output, non_block=True).result()

    def sample(self) -> Any:
        """The output of the pass that was run last."""
        return self._executor.sample_tokens(None, non_block=True).result()

    def drafts(self) -> Any:
        """The drafts that the worker proposes after the pass that was run last."""
        return self._executor.take_draft_token_ids()

    def table(self, rid: str, group: int) -> Any:
        """The block table with which the worker runs a request."""
        batch = self.runner.input_batch
        return batch.block_table[group].get_numpy_array()[batch.req_id_to_index[rid]]

    def _memories(self, name: str) -> list[LayerMemory]:
        kv = self._kv(name)
        if not isinstance(kv, self.torch.Tensor):
            inputs, *states = kv
            windows = inputs.unfold(1, inputs.shape[1] - self._num_drafts, 1)
            return [LayerMemory(name, windows), *[LayerMemory(name, state.unsqueeze(1)) for state in states]]
        blocks, heads, size, _ = kv.shape
        values = kv.view(blocks, heads, 2 * size, -1)[:, :, size:]  # see CPUAttentionBackendImpl.forward
        return [LayerMemory(name, values.transpose(1, 2))]

    def _kv(self, name: str) -> Any:
        return self.runner.compilation_config.static_forward_context[name].kv_cache


def _replace_kernels(torch: Any) -> None:
    """Replace what the layers of a release do wrong on the CPU with drafts, or have for GPUs only."""
    mamba2, short_conv, base = [vars(importlib.import_module(f"{LAYERS}.{name}")) for name in MAMBA]
    for module in (mamba2, short_conv):
        module["causal_conv1d_update"] = kernels.convolution_with_drafts(torch, module["causal_conv1d_update"])
    mamba2["selective_state_update"] = kernels.scan_with_drafts(torch, mamba2["selective_state_update"])
    layer = short_conv["ShortConv"]
    native, on_gpus = layer.forward_native, layer.forward_cuda
    layer.forward_native = lambda self, **tensors: (on_gpus if self.num_spec else native)(self, **tensors)
    mamba2["MambaMixer2"].get_kv_cache_spec = base["MambaBase"].get_kv_cache_spec  # without states inside a pass
    copies, override = vars(importlib.import_module(COPIES)), vars(importlib.import_module(KERNELS))["KernelOverride"]
    copies.update({name: override(copies[name], kernel) for name, kernel in kernels.KERNELS.items()})


def _with_tokens(new: Any) -> Any:
    """A new request of a pass, with its tokens as the model reads them."""
    changed: Mapping[str, Any] = {
        name: as_read(tokens)
        for name in ("prompt_token_ids", "prefill_token_ids")
        if (tokens := getattr(new, name, None)) is not None
    }
    return dataclasses.replace(new, **changed)


real_model = cache(RealModel)  # the models of this process: the first takes seconds, the others less
