"""Stand-ins for the packages and kernels of SGLang that need a GPU or a server."""

import hashlib
from array import array
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from types import ModuleType, SimpleNamespace
from typing import Any

from swarden.harness.kit.stand_ins import Missing, Silent, replace_present

ABSENT = {  # packages that need not be installed, with the reason
    "torchvision": "images are not served; its wheels need a CUDA build of torch",
    "sgl_kernel": "GPU kernels; the forward pass is a stand-in",
    "fastapi": "the HTTP server is not started",
    "uvicorn": "the HTTP server is not started",
    "prometheus_client": "metrics are not exported",
}


def replace_allocator_kernels(modules: Sequence[ModuleType]) -> None:
    """Replace the two triton kernels that compute the slots of new tokens, in the modules that use them.

    For a prefill this is the release's own `alloc_extend_naive`, which it uses on other devices.  For a decode, one
    token of each request, the slots are computed here.
    """
    naive = next(vars(module)["alloc_extend_naive"] for module in modules if "alloc_extend_naive" in vars(module))

    def extend(*arguments: Any) -> None:
        before, after, last, free, out, _batch, page_size = arguments[:7]
        naive(before, after, last, free, out, page_size, "cpu")

    def decode(*arguments: Any) -> None:
        after, last, free, out, _batch, page_size = arguments[:6]
        pages = (after + page_size - 1) // page_size - (after + page_size - 2) // page_size
        first = pages.cumsum(0) - pages
        for index in range(len(after)):
            if not pages[index]:
                out[index] = last[index] + 1
            elif first[index] < len(free):  # else the release sees afterwards that there are too few pages
                out[index] = free[first[index]] * page_size

    kernels = {"alloc_extend_kernel": extend, "alloc_decode_kernel": decode}
    for names in map(vars, modules):
        for name in kernels.keys() & names.keys():
            names[name] = defaultdict(partial(kernels.get, name))  # called as kernel[grid](…)


def replace_devices(modules: Sequence[ModuleType], devices: Any) -> None:
    """Replace streams and events by those of `devices`, pinned memory, and the sizes that are for GPUs, in modules."""
    values = {
        "device_module": devices,
        "HICACHE_HOST_MEMORY_RESERVE_BYTES": 0,  # a release reserves 10 GB, for pools of gigabytes
        "STORAGE_BATCH_SIZE": 2,  # pages of one operation of the storage; 128 in the releases
    }
    replace_present(modules, values)
    for module in modules:
        vars(module).get("ALLOC_MEMORY_FUNCS", {})["cpu"] = _unpinned


def unpin_memory(modules: Iterable[ModuleType]) -> None:
    """Let pinned memory, which only copies to a GPU need, be plain memory: here, and in `Tensor.pin_memory`."""
    for module in modules:
        torch = vars(module)["torch"]
        plain = ModuleType("torch")
        vars(plain).update(vars(torch), tensor=_tensor(torch.tensor))
        vars(module)["torch"] = plain
        torch.Tensor.pin_memory = lambda tensor: tensor


def replace_hashes(modules: Iterable[ModuleType]) -> None:
    """Replace the extension in C++ that hashes the tokens of pages, which a release compiles when it first needs it."""
    for module in modules:
        vars(module)["_load_native_hash_module"] = lambda: SimpleNamespace(get_hash=_hash)


def _hash(*arguments: Any) -> str | list[str]:
    """The SHA-256 of all tokens, or of those of each page with the one before; they are of `width` numbers each."""
    tokens, count, width, is_bigram, prior, page_size = arguments
    units = [tokens[at : at + 2] if is_bigram else tokens[at * width : (at + 1) * width] for at in range(count)]
    digests = [prior or b""]
    for start in range(0, count, page_size) if page_size is not None else (0,):
        page = units[start : start + page_size] if page_size is not None else units
        words = array("I", [number for unit in page for number in unit])
        digests.append(hashlib.sha256(digests[-1] + words.tobytes()).digest())
    return digests[-1].hex() if page_size is None else [digest.hex() for digest in digests[1:]]


def _tensor(original: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args, pin_memory=False, **options: original(*args, **options)


def _unpinned(dims: Any, dtype: Any, device: str, *, allocator: Any, **options: Any) -> Any:
    return allocator.allocate(dims, dtype=dtype, device=device)


def beside_the_scheduler(stream: Callable[[], Any], vocab_size: int) -> dict[str, Any]:
    """The model, the other ranks, and the objects that inform others; none of them owns KV memory."""
    runner = Missing()
    return {
        "is_generation": True,
        "model_config": Missing(
            vocab_size=vocab_size,
            is_encoder_decoder=False,
            is_matryoshka=False,
            hidden_size=4,
            is_multimodal=False,
            num_hidden_layers=2,
            hf_config=Missing(),
            hf_text_config=Missing(),
            get_total_num_kv_heads=lambda: 1,
        ),
        "schedule_stream": stream(),
        "forward_stream": stream(),
        "_war_barrier_enabled": True,  # as with CUDA
        "model_worker": SimpleNamespace(war_fastpath_runner=runner, last_shared_read_runner=runner),
        "dp_attn_adapter": SimpleNamespace(
            maybe_prepare_mlp_sync_batch=_same,
            maybe_convert_decode_to_extend=_same,
            maybe_prepare_mlp_sync_batch_and_log_stats=_same,
        ),
        "ngram_embedding_manager": SimpleNamespace(prepare_for_forward=_same),
        "grammar_manager": Silent(has_waiting_grammars=lambda: False, grammar_queue=[]),
        "metrics_reporter": Silent(
            enable_metrics=False,
            num_retracted_reqs=0,
            current_scheduler_metrics_enabled=False,
            is_stats_logging_rank=False,
            num_generated_tokens=0,
            forward_ct_decode=0,
            spec_total_num_forward_ct=0,
        ),
        "output_streamer": Silent(),
        "dllm_manager": Silent(),  # no diffusion: it has nothing staged
        "future_map": Silent(),  # the next input tokens, on the device
        "beam_coordinator": Silent(pending_member_rows=lambda *_args, **_options: 0),
        "load_publisher": Silent(),
        "load_inquirer": Silent(_get_num_pending_tokens=lambda *_args, **_options: 0),
        "kv_events_publisher": Silent(enable_kv_cache_events=False),
        "stats": SimpleNamespace(),
    }


def _same(batch: Any = None, *args: Any, **kwargs: Any) -> Any:
    return batch
