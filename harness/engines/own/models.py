"""The models that a whole engine can be driven with instead of the stand-in: tiny ones, of random weights."""

from dataclasses import replace
from functools import cache
from typing import NamedTuple

import torch

from engine_under_test.config import EngineConfig
from engine_under_test.model.decoder import Decoder, random_decoder
from engine_under_test.model.spec import LayerSpec, ModelSpec
from engine_under_test.model.tiny import TINY, tiny_spec
from harness.engines.own.without_cache import WithoutCache

MODELS = {f"tiny-{family}": family for family in TINY}
WEIGHTS_SEED = 7
NUM_LAYERS = 3
# Prompts are named by multiples of 64 tokens, so that with a prime behind that they differ token by token.
VOCABULARY = 97
SIZES = {"vocab_size": VOCABULARY, "hidden_size": 32, "intermediate_size": 48}


class TinyModel(NamedTuple):
    """A model in float64, and what it says of a sequence when it keeps nothing."""

    decoder: Decoder
    without_cache: WithoutCache


def tiny_model(name: str, config: EngineConfig) -> TinyModel:
    """The model of that name, a key of MODELS, as an engine of this configuration can run it.

    Each of its pools has layers that read it; the weights are the same each time.
    """
    kinds = tuple(pool.window is not None for pool in config.pools)
    model = _made(MODELS[name], kinds, config.sliding_window)
    model.decoder.reserve(config.max_context_len)
    return model


@cache
def _made(family: str, kinds: tuple[bool, ...], window: int | None) -> TinyModel:
    spec = _with_layers(tiny_spec(family, **SIZES), kinds, window)
    decoder = random_decoder(spec, WEIGHTS_SEED, torch.float64)
    return TinyModel(decoder, WithoutCache(decoder))


def _with_layers(spec: ModelSpec, kinds: tuple[bool, ...], window: int | None) -> ModelSpec:
    """The kinds in turn, the last one first; a kind that the family does not have is rotated as the other."""
    ropes = {layer.is_sliding: layer.rope for layer in spec.layers}
    turns = [kinds[-1 - index % len(kinds)] for index in range(NUM_LAYERS)]
    layers = [
        LayerSpec(index, is_sliding, ropes.get(is_sliding, spec.layers[0].rope))
        for index, is_sliding in enumerate(turns)
    ]
    return replace(spec, layers=tuple(layers), sliding_window=window)
