"""The model without a KV cache: its results are cached by prefix, and are equal when they are computed again."""

import pytest
import torch

from swarden.engine_under_test.config import EngineConfig
from swarden.engine_under_test.model.decoder import Decoder
from swarden.engine_under_test.model.weights import random_tensors
from swarden.harness.engines.own import without_cache
from swarden.harness.engines.own.models import tiny_model
from swarden.harness.engines.own.without_cache import WithoutCache

SPEC = tiny_model("tiny-gemma2", EngineConfig(page_size=4, full_pages=4, swa_pages=6, sliding_window=4)).decoder.spec
TOKENS = [3, 1, 4, 1, 5, 9, 2, 6]


class Counting(Decoder):
    """A decoder that records the number of tokens of each pass."""

    def __init__(self) -> None:
        super().__init__(SPEC, random_tensors(SPEC, 3, torch.float64))
        self.passes: list[int] = []

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        self.passes.append(len(hidden))
        return super().logits(hidden)


def test_prefix_of_a_computed_sequence_is_not_computed_again():
    decoder = Counting()
    model = WithoutCache(decoder)

    whole, prefix = model.logits(TOKENS, 0), model.logits(TOKENS[:5], 0)

    assert decoder.passes == [8]
    assert whole[:5].equal(prefix)


def test_unknown_sequences_are_computed_in_one_pass():
    decoder = Counting()
    model = WithoutCache(decoder)
    model.remember([TOKENS[:3]])

    model.remember([TOKENS, TOKENS[:2], [7, 7]])

    assert decoder.passes == [3, 16]


def test_dropped_results_are_computed_again(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(without_cache, "MAX_CACHED", 4)
    decoder = Counting()
    model = WithoutCache(decoder)

    for _ in range(2):
        model.logits(TOKENS, 0)
        model.logits([7, 7], 0)

    assert decoder.passes == [8, 2, 8]
