"""Stand-ins for the packages and kernels of SGLang that need a GPU or a server."""

import hashlib
from array import array
from collections.abc import Callable, Iterable, Sequence
from types import ModuleType, SimpleNamespace
from typing import Any

from swarden.harness.kit.streams import Devices

ABSENT = {  # packages that need not be installed, with the reason
    "torchvision": "images are not served; its wheels need a CUDA build of torch",
    "sgl_kernel": "GPU kernels; the forward pass is a stand-in",
    "fastapi": "the HTTP server is not started",
    "uvicorn": "the HTTP server is not started",
}


class Kernel:
    """A function in the place of a triton kernel, which is called as `kernel[grid](…)`."""

    def __init__(self, function: Callable[..., None]) -> None:
        self._function = function

    def __getitem__(self, grid: object) -> Callable[..., None]:
        return self._function


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

    for module in modules:
        for name, function in (("alloc_extend_kernel", extend), ("alloc_decode_kernel", decode)):
            if hasattr(module, name):
                setattr(module, name, Kernel(function))


def replace_devices(modules: Iterable[ModuleType]) -> None:
    """Replace streams, events, pinned memory and the sizes that are for GPUs in these modules of a release."""
    for module in modules:
        names = vars(module)
        if "device_module" in names:
            names["device_module"] = Devices
        if "ALLOC_MEMORY_FUNCS" in names:
            names["ALLOC_MEMORY_FUNCS"]["cpu"] = _unpinned
        if "HICACHE_HOST_MEMORY_RESERVE_BYTES" in names:
            names["HICACHE_HOST_MEMORY_RESERVE_BYTES"] = 0  # a release reserves 10 GB, for pools of gigabytes
        if "STORAGE_BATCH_SIZE" in names:
            names["STORAGE_BATCH_SIZE"] = 2  # pages of one operation of the storage; 128 in the releases


def unpin_memory(modules: Iterable[ModuleType]) -> None:
    """Let pinned memory be plain memory: in these modules, and in `Tensor.pin_memory` of the whole process.

    Only copies to a GPU need pinned memory.
    """
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
