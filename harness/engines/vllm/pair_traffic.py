"""Random traffic for a prefill and a decode core, and for the link between them."""

from collections.abc import Sequence

import msgspec
from hypothesis import strategies as st
from hypothesis.stateful import initialize

from swarden.harness.core.ops import Op, Submit, expand
from swarden.harness.engines.vllm.layers import LayerGroup
from swarden.harness.search.traffic.pairs import DECODE, PairTraffic

CUTS = range(6)  # tokens


class VllmPairs(PairTraffic):
    """Cuts prompts whose load misses a block (whole-prompt-load-misses-a-window-block) in three of four runs.

    With small blocks most runs would end with this bug.
    """

    cuts_prompts = False

    @initialize(share=st.integers(0, 3))
    def choose(self, share: int) -> None:
        self.cuts_prompts = share < 3

    def apply(self, op: Op) -> None:
        if isinstance(op, Submit) and self.cuts_prompts and self.configs:
            fitting = (msgspec.structs.replace(op.recipe, cut=op.recipe.cut + more, continues=None) for more in CUTS)
            groups = self.configs[DECODE].groups
            whole = (recipe for recipe in fitting if not misses_a_block(len(expand(recipe)), groups))
            op = msgspec.structs.replace(op, recipe=next(whole, op.recipe))
        super().apply(op)


def misses_a_block(prompt_len: int, groups: Sequence[LayerGroup]) -> bool:
    """Whether the last token of a prompt reads a block that its load does not bring."""
    firsts = [
        (prompt_len - window, size) for window, size, has_states in groups if window is not None and not has_states
    ]
    return any(first >= 0 and (first + 1) % size == 0 for first, size in firsts)
