"""Reads the rotary embeddings of a config.json, as transformers 5 writes them and as older files do."""

import math
from collections.abc import Mapping
from typing import Any

from swarden.engine_under_test.model.config_file import FULL, SLIDING, ConfigFile
from swarden.engine_under_test.model.layers import SCALINGS
from swarden.engine_under_test.model.spec import RopeSpec

# The keys of one object of rope_parameters or rope_scaling.  A rope type ignores the keys that it does not use.
READ = frozenset(
    (
        *("rope_type", "type", "rope_theta", "factor", "original_max_position_embeddings"),
        *("attention_factor", "mscale", "mscale_all_dim", "beta_fast", "beta_slow", "truncate"),
        *("low_freq_factor", "high_freq_factor"),
    )
)
UNSCALED: Mapping[str, Any] = {"rope_type": "default"}


def rope_of(config: ConfigFile, layer_type: str, *, by_type: bool, rotated_share: float) -> RopeSpec:
    """The rotary embedding of layers of `layer_type`; raises CheckpointError.

    `by_type`: sliding and full layers have different rotary embeddings.  `rotated_share` is the share of the family.
    """
    parameters = _parameters_of(config, layer_type) if by_type else _parameters_of_all(config)
    parameters.refuse_others(READ, {"partial_rotary_factor": rotated_share}, reader="a rotary embedding")
    theta_key = "rope_local_base_freq" if layer_type == SLIDING and config.has("rope_local_base_freq") else "rope_theta"
    theta = parameters.number("rope_theta") if "rope_theta" in parameters else config.number(theta_key)
    rope = RopeSpec(theta, _rope_type(parameters), rotated_share=rotated_share)
    if rope.rope_type == "default":
        return rope
    rope = rope._replace(factor=parameters.number("factor"))
    if rope.rope_type == "linear":
        return rope
    rope = rope._replace(original_len=_original_len(config, parameters, by_type=by_type))
    if rope.rope_type == "llama3":
        return _llama3(rope, parameters)
    # With one object a layer type, transformers reads `truncate` only beside these objects.
    truncate = True if by_type else parameters.flag("truncate", default=not parameters.has("truncate"))
    return _yarn(rope, parameters)._replace(truncate=truncate)


def _parameters_of_all(config: ConfigFile) -> ConfigFile:
    """The parameters of all layers; the old key takes precedence over the new one."""
    scaling = config.inner("rope_scaling")
    return scaling if scaling.values else config.inner("rope_parameters")


def _parameters_of(config: ConfigFile, layer_type: str) -> ConfigFile:
    """The parameters of the layers of one type.

    The old key applies to the full layers only, and overrides the new one key by key.
    """
    by_type = config.inner("rope_parameters")
    by_type.refuse_others((SLIDING, FULL), {"truncate": True}, reader="layers of two types")
    parameters = by_type.with_defaults({SLIDING: UNSCALED, FULL: UNSCALED}).inner(layer_type)
    scaling = config.inner("rope_scaling")
    return scaling.with_defaults(parameters.values) if layer_type == FULL and scaling.values else parameters


def _rope_type(parameters: ConfigFile) -> str:
    """The kind of rotary embedding; older files have the key `type`."""
    named = [key for key in ("rope_type", "type") if key in parameters]
    types = [parameters.choice(key, SCALINGS) for key in named]
    if len(set(types)) > 1:
        raise parameters.refusal("type", f"is {types[1]!r}, but rope_type is {types[0]!r}; want only one of these keys")
    return types[0] if types else "default"


def _original_len(config: ConfigFile, parameters: ConfigFile, *, by_type: bool) -> int:
    """The context length in tokens that the model was first trained on.

    The key beside rope_parameters takes precedence over the key within, except with one object a layer type.
    """
    places = (parameters,) if by_type else (config, parameters)
    for place in places:
        if "original_max_position_embeddings" in place:
            return place.count("original_max_position_embeddings")
    return config.count("max_position_embeddings")


def _llama3(rope: RopeSpec, parameters: ConfigFile) -> RopeSpec:
    low, high = parameters.number("low_freq_factor"), parameters.number("high_freq_factor")
    if low >= high:
        raise parameters.refusal("low_freq_factor", f"is {low}; want less than high_freq_factor, {high}")
    return rope._replace(low_freq_factor=low, high_freq_factor=high)


def _yarn(rope: RopeSpec, parameters: ConfigFile) -> RopeSpec:
    if rope.theta <= 1:
        raise parameters.refusal("rope_theta", f"is {rope.theta}; want more than 1")
    return rope._replace(
        attention_factor=_attention_factor(parameters, rope.factor),
        beta_fast=parameters.number("beta_fast") if "beta_fast" in parameters else rope.beta_fast,
        beta_slow=parameters.number("beta_slow") if "beta_slow" in parameters else rope.beta_slow,
    )


def _attention_factor(parameters: ConfigFile, factor: float) -> float:
    """The factor by which the rotated vectors are scaled.

    Source: arXiv 2309.00071, section 3.4; the ratio of two scales: DeepSeek-V2, arXiv 2405.04434.
    """
    if "attention_factor" in parameters:
        return parameters.number("attention_factor")
    if "mscale" in parameters and "mscale_all_dim" in parameters:
        return _scale(factor, parameters.number("mscale")) / _scale(factor, parameters.number("mscale_all_dim"))
    return _scale(factor, 1.0)


def _scale(factor: float, weight: float) -> float:
    return 0.1 * weight * math.log(factor) + 1.0 if factor > 1.0 else 1.0
