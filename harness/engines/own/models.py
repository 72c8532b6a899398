"""Tiny models with random weights, which an engine can run instead of the fake forward."""

from dataclasses import replace
from functools import cache
from typing import NamedTuple

import torch

from swarden.engine_under_test.config import EngineConfig
from swarden.engine_under_test.errors import ConfigError
from swarden.engine_under_test.model.decoder import Decoder, random_decoder
from swarden.engine_under_test.model.paged import kind_of
from swarden.engine_under_test.model.runner import usable_device
from swarden.engine_under_test.model.spec import LayerKind, LayerSpec, ModelSpec
from swarden.engine_under_test.model.tiny import TINY, tiny_spec
from swarden.harness.core.errors import UsageError
from swarden.harness.engines.own.without_cache import WithoutCache

ON_CUDA = "@cuda"  # ends the name of a model whose engine holds its tensors on a GPU
FAMILIES = {f"tiny-{family}": family for family in TINY}
MODELS = (*FAMILIES, *(f"{name}{ON_CUDA}" for name in FAMILIES))
WEIGHTS_SEED = 7
NUM_LAYERS = 3
# Token ids of prompts differ by multiples of 64. Modulo a larger prime they still differ.
VOCABULARY = 97
SIZES = {"vocab_size": VOCABULARY, "hidden_size": 32, "intermediate_size": 48}


class TinyModel(NamedTuple):
    """A model in float64, and the same model without a cache, on the CPU."""

    decoder: Decoder
    without_cache: WithoutCache


def tiny_model(name: str, config: EngineConfig) -> TinyModel:
    """The model `name`, one of MODELS, for an engine of this configuration.

    Each pool of the engine has layers that read it.  The weights are the same in each call.  Raises UsageError if the
    model is one of a GPU, and there is none.
    """
    kinds = tuple(kind_of(pool.window, num_slots=pool.slots) for pool in config.pools)
    model = _made(name, kinds, config.sliding_window)
    model.decoder.reserve(config.max_context_len)
    return model


@cache
def _made(name: str, kinds: tuple[LayerKind, ...], window: int | None) -> TinyModel:
    name, is_on_cuda = name.removesuffix(ON_CUDA), name.endswith(ON_CUDA)
    spec = _with_layers(tiny_spec(FAMILIES[name], **SIZES), kinds, window)
    on_cpu = random_decoder(spec, WEIGHTS_SEED, torch.float64)
    if not is_on_cuda:
        return TinyModel(on_cpu, WithoutCache(on_cpu))
    try:
        device = usable_device("cuda")
    except ConfigError as error:
        raise UsageError(f"model {name}{ON_CUDA}: {error}; --model {name} runs it on the CPU") from error
    return TinyModel(random_decoder(spec, WEIGHTS_SEED, torch.float64, device), WithoutCache(on_cpu))


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
