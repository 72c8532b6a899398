"""What is replaced of a device: streams and copies, two kernels, and the states of recurrent layers."""

import sys
from collections import defaultdict
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import torch
from sglang.srt.configs.mamba_utils import Mamba2CacheParams, Mamba2StateDType, Mamba2StateShape
from sglang.srt.mem_cache import memory_pool
from sglang.srt.mem_cache.allocator import paged
from sglang.srt.session import session_controller

from swarden.harness.kit.clock import EngineClock
from swarden.harness.kit.stand_ins import Silent
from swarden.harness.kit.standalone import Bug

IS_HYBRID = False
PAGE_SIZE = 1
STATES: dict[str, Any] = {}  # of HybridReqToTokenPool
STATE_CHUNK_LEN = 0  # of the model's kernels
TREE: dict[str, Any] = {}  # further arguments of CacheInitParams
ANSWERS: dict[str, list[int]] = {}  # of the model, by request


def answer(rid: str, place: int) -> int:
    """The token that the model samples for a request at a place of its output."""
    tokens = ANSWERS.get(rid, [])
    return tokens[place] if 0 <= place < len(tokens) else 7 + max(0, place)


class Stream(Silent):
    """A stream or an event of a device on which each copy has ended at once."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(query=lambda: True, elapsed_time=lambda other: 0.0)


CLOCK = EngineClock()
DEVICE = SimpleNamespace(Stream=Stream, Event=Stream, stream=lambda stream: nullcontext(), current_stream=Stream)


def extend_slots(*arguments: Any) -> None:
    before, after, last, free, out, _, page_size = arguments[:7]
    paged.alloc_extend_naive(before, after, last, free, out, page_size, "cpu")


def decode_slots(*arguments: Any) -> None:
    after, last, free, out, _, page_size = arguments[:6]
    pages = (after + page_size - 1) // page_size - (after + page_size - 2) // page_size
    first = pages.cumsum(0) - pages
    for index in range(len(after)):
        if not pages[index]:
            out[index] = last[index] + 1
        elif first[index] < len(free):
            out[index] = free[first[index]] * page_size


def unpinned(dims: Any, dtype: Any, device: Any, *, allocator: Any, **_: Any) -> Any:
    return allocator.allocate(dims, dtype=dtype, device=device)


def replace_device() -> None:
    CLOCK.serve([session_controller])
    for names in [vars(module) for name, module in sys.modules.items() if name.startswith("sglang.srt.")]:
        for name, value in (
            ("device_module", DEVICE),
            ("alloc_extend_kernel", defaultdict(lambda: extend_slots)),  # called as kernel[grid](...)
            ("alloc_decode_kernel", defaultdict(lambda: decode_slots)),
            ("HICACHE_HOST_MEMORY_RESERVE_BYTES", 0),
        ):
            if name in names:
                names[name] = value
        if "ALLOC_MEMORY_FUNCS" in names:
            names["ALLOC_MEMORY_FUNCS"]["cpu"] = unpinned


def silent(*args: Any, **kwargs: Any) -> None:
    """Measures and informs nobody."""


class States:
    """In place of each recurrent state a number for the tokens that are in it."""

    def __init__(self, rows: Any) -> None:
        self.rows = rows
        self.tokens: dict[int, list[int]] = {}  # by number

    def compute(self, batch: Any, ends: list[int]) -> None:
        """Read the state of each request, write that behind its tokens, and copy the one that the batch tracks."""
        pool, is_prefill = self.rows.mamba_pool, batch.forward_mode.is_extend()
        slots = pool.mamba_cache.temporal[0, :, 0, 0, 0]
        if is_prefill:
            if batch.mamba_clear_indices is not None:
                pool.clear_slots(batch.mamba_clear_indices)
            if batch.mamba_cow_src_indices is not None:
                pool.copy_from(batch.mamba_cow_src_indices, batch.mamba_cow_dst_indices)
        for index, (req, stop) in enumerate(zip(batch.reqs, ends, strict=True)):
            tokens, start = [*req.origin_input_ids, *req.output_ids], stop - 1
            tokens += [answer(req.rid, place) for place in range(len(req.output_ids), stop)]
            if is_prefill:
                start = batch.prefix_lens[index]
            own = int(self.rows.req_index_to_mamba_index_mapping[int(batch.req_pool_indices[index])])
            held = int(slots[own])
            if start and held != self.number(req, tokens[:start]):
                what = f"tokens {start} to {stop}, and its state has {len(self.tokens.get(held, []))} tokens in it"
                raise Bug("read", f"{req.rid} computes {what}")
            slots[own] = self.number(req, tokens[:stop])
            if batch.mamba_track_mask is not None and batch.mamba_track_mask[index]:
                tracked = stop
                if is_prefill and (more := int(batch.mamba_track_seqlens[index]) - start) % STATE_CHUNK_LEN:
                    tracked = start + more // STATE_CHUNK_LEN * STATE_CHUNK_LEN
                slots[int(batch.mamba_track_indices[index])] = self.number(req, tokens[:tracked])

    def number(self, req: Any, tokens: list[int]) -> int:
        number = hash((req.extra_key, *tokens))
        self.tokens[number] = tokens
        return number


def rows_with_states(args: Any, **of_rows: Any) -> Any:
    args._mamba_cache_chunk_size = max(STATE_CHUNK_LEN, PAGE_SIZE) if TREE["enable_mamba_extra_buffer"] else 1
    layers = [2 if IS_HYBRID else 0]
    ones = dict.fromkeys(("intermediate_size", "conv_dim", "ssm_state_size", "num_heads", "head_dim"), 1)
    shape = Mamba2StateShape(conv=[(1, 1)], temporal=(1, 1, 1), **ones, state_size=1, conv_kernel=1)
    kinds = Mamba2StateDType(conv=torch.int64, temporal=torch.int64)
    return memory_pool.HybridReqToTokenPool(
        **of_rows,
        **STATES,
        enable_memory_saver=False,
        cache_params=Mamba2CacheParams(shape=shape, dtype=kinds, layers=layers),
        mamba_layer_ids=layers,
    )
