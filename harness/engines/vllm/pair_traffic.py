"""Random traffic for a prefill and a decode core, and for the link between them."""

from collections.abc import Sequence

import msgspec

from swarden.harness.core.ops import Op, Submit
from swarden.harness.core.recipes import expand
from swarden.harness.engines.foreign.target import ReleasedTarget
from swarden.harness.engines.vllm.config import (
    DECODE,
    LINK_FAULTS,
    PREFILL,
    LayerGroup,
    VllmConfig,
    plain_config,
    with_blocks,
    with_drafts,
)
from swarden.harness.search.pairs import DECODE_SIDE, KINDS, PREFILL_SIDE, PairTraffic
from swarden.harness.search.traffic import HypothesisDraw

CUTS = range(6)  # tokens


class VllmPairs(PairTraffic):
    """The decode side reads the KV, so it has the faults of the link."""

    kinds = (*KINDS, "accept")
    link_faults = tuple(LINK_FAULTS)
    faulty_side = DECODE_SIDE
    cuts_prompts = False

    def sides(self, draw: HypothesisDraw) -> Sequence[VllmConfig]:
        """One model, but other pools, batches and schedulers. Drafts are those of both sides, or of the decode side."""
        target = self.listener.target
        assert isinstance(target, ReleasedTarget), f"{target.name} has no releases"
        has = target.booted().has
        self.cuts_prompts = draw.one_of((True, True, True, False))
        first = msgspec.structs.replace(plain_config(draw, has=has), sleeps=False, role=PREFILL)
        running = draw.one_of((4, 2, 8, 1))
        second = msgspec.structs.replace(
            first,
            role=DECODE,
            max_running_requests=running,
            chunk_len=max(first.chunk_len, running),
            asynchronous=draw.one_of((False, True)),
            prefix_caching=draw.one_of((True, True, False)),
            recomputes_loads=draw.one_of((True, False)),
        )
        if draw.one_of((False, False, True)):
            second = with_drafts(draw, second, has=has)
        return with_blocks(draw, first), with_blocks(draw, second)

    def apply(self, op: Op) -> None:
        """In three of four runs, cut the prompts whose load misses a block (whole-prompt-load-misses-a-window-block).

        With small blocks most runs would end with this bug.
        """
        if isinstance(op, Submit) and self.cuts_prompts:
            fitting = (msgspec.structs.replace(op.recipe, cut=op.recipe.cut + more, continues=None) for more in CUTS)
            groups = self.configs[DECODE_SIDE].groups
            whole = (one for one in fitting if not misses_a_block(len(expand(one)), groups))
            op = msgspec.structs.replace(op, recipe=next(whole, op.recipe))
        super().apply(op)

    def capacities(self) -> Sequence[int]:
        config = self.configs[PREFILL_SIDE]
        return config.num_blocks * config.block_size, config.chunk_len, config.max_context_len - 16


def misses_a_block(prompt_len: int, groups: Sequence[LayerGroup]) -> bool:
    """Whether the last token of a prompt reads a block that its load does not bring."""
    windowed = [(prompt_len - group.window, group.block_size) for group in groups if group.window is not None]
    return any(first >= 0 and (first + 1) % size == 0 for first, size in windowed)
