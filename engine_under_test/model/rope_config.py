"""How a config.json says how its layers rotate: as transformers 5 writes it, and as older files do."""

import math

from engine_under_test.model.config_file import ConfigFile
from engine_under_test.model.layers import SCALINGS
from engine_under_test.model.spec import RopeSpec


def rope_of(config: ConfigFile, layer_type: str, *, by_type: bool, old_theta_key: str) -> RopeSpec:
    """The rotary embedding of layers of `layer_type`.

    `by_type`: sliding and full layers have one each, and in older files a scaling is that of the full ones alone.
    `old_theta_key` is where older files keep the base.  Raises CheckpointError.
    """
    if "rope_parameters" in config:
        parameters = config.inner("rope_parameters")
        if by_type or layer_type in parameters:
            parameters = parameters.inner(layer_type)
        return _scaled(config, parameters, parameters.number("rope_theta"))
    theta = config.number(old_theta_key)
    if "rope_scaling" in config and not (by_type and layer_type == "sliding_attention"):
        return _scaled(config, config.inner("rope_scaling"), theta)
    return RopeSpec(theta)


def _scaled(config: ConfigFile, parameters: ConfigFile, theta: float) -> RopeSpec:
    for key in ("partial_rotary_factor", "mscale"):
        if key in parameters and parameters.number(key) != 1.0:
            raise parameters.refusal(key, "is not understood; only what rotates whole heads, scaled by one factor, is")
    type_key = "rope_type" if "rope_type" in parameters or "type" not in parameters else "type"
    rope = RopeSpec(theta, parameters.choice(type_key, SCALINGS))
    if rope.rope_type == "default":
        return rope
    rope = rope._replace(factor=parameters.number("factor"))
    if rope.rope_type == "linear":
        return rope
    rope = rope._replace(original_len=_original_len(config, parameters))
    if rope.rope_type == "llama3":
        low, high = parameters.number("low_freq_factor"), parameters.number("high_freq_factor")
        if low >= high:
            raise parameters.refusal("low_freq_factor", f"is {low}; want less than high_freq_factor, {high}")
        return rope._replace(low_freq_factor=low, high_freq_factor=high)
    if theta <= 1:
        raise parameters.refusal("rope_theta", f"is {theta}; want more than 1")
    return rope._replace(
        attention_factor=_attention_factor(parameters, rope.factor),
        beta_fast=parameters.number("beta_fast") if "beta_fast" in parameters else rope.beta_fast,
        beta_slow=parameters.number("beta_slow") if "beta_slow" in parameters else rope.beta_slow,
        truncate=parameters.flag("truncate", default=True),
    )


def _original_len(config: ConfigFile, parameters: ConfigFile) -> int:
    for place in (config, parameters):
        if "original_max_position_embeddings" in place:
            return place.count("original_max_position_embeddings")
    return config.count("max_position_embeddings")


def _attention_factor(parameters: ConfigFile, factor: float) -> float:
    """Source: arXiv 2309.00071, section 3.4: 0.1 ln(factor) + 1."""
    if "attention_factor" in parameters:
        return parameters.number("attention_factor")
    return 0.1 * math.log(factor) + 1.0 if factor > 1.0 else 1.0
