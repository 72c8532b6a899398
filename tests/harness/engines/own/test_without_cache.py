"""The model that keeps nothing: it remembers answers, and gives the same ones when it has forgotten them."""

import pytest
import torch

from engine_under_test.config import EngineConfig
from engine_under_test.model.decoder import Decoder
from engine_under_test.model.weights import random_tensors
from harness.engines.own import without_cache
from harness.engines.own.models import tiny_model
from harness.engines.own.without_cache import WithoutCache

SPEC = tiny_model("tiny-gemma2", EngineConfig(page_size=4, full_pages=4, swa_pages=6, sliding_window=4)).decoder.spec
TOKENS = [3, 1, 4, 1, 5, 9, 2, 6]


class Counting(Decoder):
    """A decoder that notes of how many tokens each of its passes is."""

    def __init__(self) -> None:
        super().__init__(SPEC, random_tensors(SPEC, 3, torch.float64))
        self.passes: list[int] = []

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        self.passes.append(len(hidden))
        return super().logits(hidden)


def test_a_prefix_of_what_was_computed_is_known():
    decoder = Counting()
    model = WithoutCache(decoder)

    whole, prefix = model.logits(TOKENS, 0), model.logits(TOKENS[:5], 0)

    assert decoder.passes == [8]
    assert whole[:5].equal(prefix)


def test_what_is_unknown_is_computed_in_one_pass_from_its_first_token_on():
    decoder = Counting()
    model = WithoutCache(decoder)
    model.remember([TOKENS[:3]])

    model.remember([TOKENS, TOKENS[:2], [7, 7]])

    assert decoder.passes == [3, 16]


def test_a_token_changes_its_own_logits_and_the_later_ones():
    model = WithoutCache(Counting())

    difference = (model.logits(TOKENS, 0) - model.logits([*TOKENS[:4], 8, *TOKENS[5:]], 0)).abs().amax(-1)

    assert difference[:4].max() < 1e-12
    assert difference[4:].min() > 1e-3


def test_what_was_forgotten_is_computed_again(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(without_cache, "MAX_CACHED", 4)
    decoder = Counting()
    model = WithoutCache(decoder)

    for _ in range(2):
        model.logits(TOKENS, 0)
        model.logits([7, 7], 0)

    assert decoder.passes == [8, 2, 8]
