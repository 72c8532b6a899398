"""Kernels of recurrent layers with drafts, which the build for the CPU has for GPUs only, or without drafts.

The state after each draft has a place of its own: a block of its own, or of the last inputs of a convolution, a window
of its block that is shifted by one more input.  The first two kernels copy states between blocks of a request, as
those of mamba_utils.py; the others compute.
"""

from collections.abc import Callable, Mapping, Sequence
from ctypes import c_int32, memmove
from itertools import pairwise
from typing import Any

INT32 = 4  # bytes


def move_states(*arguments: Any, **_constants: Any) -> None:
    """Before a pass, copy the running state of each request that goes on in another column of its tables."""
    columns, sources, shifts, *layout, _, count = arguments
    moves = zip(sources[:count].tolist(), columns[:count].tolist(), shifts[:count].tolist(), strict=True)
    for row, (source, column, shift) in enumerate(moves):
        if source not in (-1, column):
            _copy(layout, row, source, column, shift)


def keep_states(*arguments: Any, block_size: int, **_constants: Any) -> None:
    """After a pass, copy the state at the end of a block to that block, if the accepted tokens go beyond it."""
    accepted, columns, scheduled, computed, drafts, *layout, accepted_out, _, count = arguments
    firsts = (computed + scheduled - drafts)[:count].tolist()  # the tokens of the first state of the pass
    rows = zip(firsts, accepted[:count].tolist(), columns[:count].tolist(), strict=True)
    for row, (first, number, column) in enumerate(rows):
        target = (first + number - 1) // block_size - 1
        if (shift := (target + 1) * block_size - first) >= 0:
            if column == target:
                accepted_out[row] = 1
            _copy(layout, row, column, target, shift)


KERNELS: Mapping[str, Callable[..., None]] = {
    "precopy_mamba_align_fused_kernel": move_states,
    "postprocess_mamba_fused_kernel": keep_states,
}


def _copy(layout: Sequence[Any], row: int, source: int, target: int, shift: int) -> None:
    """Copy the states of a request after `shift` more tokens than in one column of its tables to another column.

    The layout is that of the kernels: addresses of the block tables, the int32 from row to row; then of each state of a
    layer its address, the bytes of a block, those of an element, the elements of a state or input, the inputs that a
    convolution keeps or 0, and the index of its table.
    """
    tables, row_len, *states = layout[:8]
    for base, stride, element_size, count, width, group in zip(*[state.tolist() for state in states], strict=True):
        table = int(tables[group]) + row * row_len * INT32
        columns = (source if width else source + shift, target)
        at, to = (base + stride * c_int32.from_address(table + INT32 * column).value for column in columns)
        size = count * element_size
        memmove(to, at + shift * size if width else at, (width - shift) * size if width else size)


def convolution_with_drafts(torch: Any, without_drafts: Callable[..., Any]) -> Callable[..., Any]:
    """causal_conv1d_update, which on the CPU goes on behind all drafts, also the rejected ones."""

    def update(*arguments: Any, **more: Any) -> Any:
        if (accepted := more.pop("num_accepted_tokens", None)) is None:
            return without_drafts(*arguments, **more)
        inputs, kept, weight, bias, activation = (*arguments, more.get("activation"))[:5]
        outputs = torch.empty_like(inputs)
        blocks, spans = more["conv_state_indices"][:, 0].tolist(), pairwise(more["query_start_loc"].tolist())
        for block, (start, end), number in zip(blocks, spans, accepted.tolist(), strict=True):
            before = kept[block, :, number - 1 : number + weight.shape[1] - 2]
            read = torch.cat([before, inputs[start:end].T], -1)
            computed = torch.conv1d(read[None], weight[:, None], bias, groups=len(weight))[0].T
            outputs[start:end] = torch.nn.functional.silu(computed) if activation else computed
            kept[block, :, : read.shape[1] - 1] = read[:, 1:]
        return outputs

    return update


def scan_with_drafts(torch: Any, without_drafts: Callable[..., Any]) -> Callable[..., Any]:
    """selective_state_update, which on the CPU keeps the state behind the last draft only; token by token here."""

    def update(*arguments: Any, **named: Any) -> None:
        if (accepted := named.pop("num_accepted_tokens", None)) is None:
            without_drafts(*arguments, **named)
            return
        state, inputs, steps, decay, to, of, *more = arguments
        starts, places, outputs = named.pop("cu_seqlens"), named.pop("state_batch_indices"), named.pop("out")
        lens, before = starts.diff(), places.gather(1, accepted[:, None].long() - 1)[:, 0]
        for index in range(int(lens.max())):
            rows = (lens > index).nonzero()[:, 0]
            at, blocks = (starts[rows] + index).long(), places[rows, index].contiguous()
            state[blocks.long()] = state[before[rows].long()]
            computed = torch.empty_like(inputs[at])
            written = {"state_batch_indices": blocks, "dst_state_batch_indices": blocks, "out": computed}
            without_drafts(state, inputs[at], steps[at], decay, to[at], of[at], *more, **{**named, **written})
            outputs[at], before = computed, places[:, index]

    return update
