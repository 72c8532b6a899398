"""Tiny models with random weights, which an engine can run instead of the fake forward."""

from dataclasses import replace
from functools import cache
from typing import NamedTuple

import torch

from swarden.engine_under_test.config import EngineConfig
from swarden.engine_under_test.model.decoder import Decoder, random_decoder
from swarden.engine_under_test.model.paged import kind_of
from swarden.engine_under_test.model.spec import LayerKind, LayerSpec, ModelSpec
from swarden.engine_under_test.model.tiny import TINY, tiny_spec
from swarden.harness.engines.own.without_cache import WithoutCache

MODELS = {f"tiny-{family}": family for family in TINY}
WEIGHTS_SEED = 7
NUM_LAYERS = 3
# Token ids of prompts differ by multiples of 64. Modulo a larger prime they still differ.
VOCABULARY = 97
SIZES = {"vocab_size": VOCABULARY, "hidden_size": 32, "intermediate_size": 48}


class TinyModel(NamedTuple):
    """A model in float64, and the same model without a cache."""

    decoder: Decoder
    without_cache: WithoutCache


def tiny_model(name: str, config: EngineConfig) -> TinyModel:
    """The model `name`, a key of MODELS, for an engine of this configuration.

    Each pool of the engine has layers that read it.  The weights are the same in each call.
    """
    kinds = tuple(kind_of(pool.window, num_slots=pool.slots) for pool in config.pools)
    model = _made(MODELS[name], kinds, config.sliding_window)
    model.decoder.reserve(config.max_context_len)
    return model


@cache
def _made(family: str, kinds: tuple[LayerKind, ...], window: int | None) -> TinyModel:
    spec = _with_layers(tiny_spec(family, **SIZES), kinds, window)
    decoder = random_decoder(spec, WEIGHTS_SEED, torch.float64)
    return TinyModel(decoder, WithoutCache(decoder))


def _with_layers(spec: ModelSpec, kinds: tuple[LayerKind, ...], window: int | None) -> ModelSpec:
    """Layers of each kind in turn, the last kind first.

    A kind of attention that the family lacks has the rope of the other; a recurrence that it lacks is that of Griffin.
    """
    ropes = {layer.kind: layer.rope for layer in spec.layers if layer.kind is not LayerKind.RECURRENT}
    other = next(iter(ropes.values()))
    turns = [kinds[-1 - index % len(kinds)] for index in range(NUM_LAYERS)]
    layers = [
        LayerSpec(index, kind, None if kind is LayerKind.RECURRENT else ropes.get(kind, other))
        for index, kind in enumerate(turns)
    ]
    recurrence = spec.recurrence or tiny_spec("recurrent-gemma").recurrence
    return replace(spec, layers=tuple(layers), sliding_window=window, recurrence=recurrence)
