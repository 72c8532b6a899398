"""Reads a ModelSpec from a config.json."""

import math
from collections.abc import Mapping
from reprlib import repr as shortened
from typing import Any

from swarden.engine_under_test.limits import MAX_HEAD_DIM, MAX_HEADS, MAX_LAYERS
from swarden.engine_under_test.model.families import FAMILIES, FIXED, HARMLESS, REQUIRED, Family
from swarden.engine_under_test.model.files import FULL, SLIDING, ConfigFile
from swarden.engine_under_test.model.layers import ACTIVATIONS, SCALINGS
from swarden.engine_under_test.model.spec import LayerKind, LayerSpec, MlpSpec, ModelSpec, RopeSpec

LAYER_TYPES = {FULL: LayerKind.FULL, SLIDING: LayerKind.SLIDING}
# The keys of one object of rope_parameters or rope_scaling.  A rope type ignores the keys that it does not use.
READ = frozenset(
    (
        *("rope_type", "type", "rope_theta", "factor", "original_max_position_embeddings"),
        *("attention_factor", "mscale", "mscale_all_dim", "beta_fast", "beta_slow", "truncate"),
        *("low_freq_factor", "high_freq_factor"),
    )
)
UNSCALED: Mapping[str, Any] = {"rope_type": "default"}


def spec_of(values: Mapping[str, Any], source: str = "config.json") -> ModelSpec:
    """The spec that a config.json's `values` describe; raises CheckpointError, naming `source` and the key."""
    config = ConfigFile(values, source)
    architecture = _architecture(config)
    family = FAMILIES[architecture]
    _check_supported(config, architecture)
    config = config.with_defaults(family.defaults)
    hidden_size, num_heads = config.count("hidden_size"), config.count("num_attention_heads", most=MAX_HEADS)
    head_dim = _head_dim(config, family)
    layers = _layers(config, family)
    kinds = {layer.kind for layer in layers}
    biased = config.flag("attention_bias", default=False)
    scale_of = config.number("query_pre_attn_scalar") if config.has("query_pre_attn_scalar") else float(head_dim)
    return ModelSpec(
        architecture=architecture,
        vocab_size=config.count("vocab_size"),
        hidden_size=hidden_size,
        num_heads=num_heads,
        num_kv_heads=_num_kv_heads(config),
        head_dim=head_dim,
        layers=layers,
        sliding_window=config.count(family.window_key) if LayerKind.SLIDING in kinds else None,
        max_context_len=config.count("max_position_embeddings"),
        mlp=_mlp(config, family),
        attention_scale=scale_of**-0.5,
        norm_eps=config.number(family.norm_eps_key),
        recurrence=family.recurrence(config) if family.recurrence else None,
        attention_softcap=_softcap(config, "attn_logit_softcapping"),
        final_softcap=_softcap(config, family.final_softcap_key),
        logit_scale=config.number("logit_scale") if config.has("logit_scale") else 1.0,
        embedding_scale=family.embedding_scale(hidden_size),
        has_sinks=family.has_sinks,
        norm_kind=family.norm_kind,
        norm_placement=family.norm_placement,
        one_plus_weight=family.one_plus_weight,
        qk_norm=family.qk_norm,
        qkv_bias=biased if family.qkv_bias is None else family.qkv_bias,
        output_bias=biased if family.output_bias is None else family.output_bias,
        rope_interleaved=family.rope_interleaved,
        tied_embeddings=config.flag("tie_word_embeddings", default=False),
        bos_token_id=next(iter(config.token_ids("bos_token_id")), None),
        eos_token_ids=config.token_ids("eos_token_id"),
    )


def _architecture(config: ConfigFile) -> str:
    named = config.raw("architectures")
    supported = ", ".join(FAMILIES)
    if not isinstance(named, list) or len(named) != 1 or str(named[0]) not in FAMILIES:
        raise config.refusal("architectures", f"is {shortened(named)}; want one of {supported}")
    return str(named[0])


def _check_supported(config: ConfigFile, architecture: str) -> None:
    family = FAMILIES[architecture]
    if config.raw("model_type") != family.model_type:
        wanted = f"want {family.model_type}, the type of {architecture}"
        raise config.refusal("model_type", f"is {shortened(config.raw('model_type'))}; {wanted}")
    if "quantization_config" in config:
        raise config.refusal("quantization_config", "is not supported; want weights that are not quantized")
    share = family.rotated_share
    if share != 1.0 and config.has("partial_rotary_factor") and "partial_rotary_factor" not in config:
        raise config.refusal("partial_rotary_factor", f"is null; want {share}, or remove it")  # null can mean 1.0
    read = {*REQUIRED, *family.defaults, *HARMLESS, *family.harmless}
    fixed = {**FIXED, "partial_rotary_factor": share, **family.fixed}
    config.refuse_others(read, fixed, reader=architecture)


def _head_dim(config: ConfigFile, family: Family) -> int:
    derived = config.count("hidden_size") // config.count("num_attention_heads", most=MAX_HEADS)
    head_dim = config.count("head_dim") if "head_dim" in config else derived
    least = round(2 / family.rotated_share)
    if head_dim % least or not least <= head_dim <= MAX_HEAD_DIM:
        wanted = f"want a multiple of {least} from {least} to {MAX_HEAD_DIM}, for rotation in pairs"
        raise config.refusal("head_dim", f"is {head_dim}; {wanted}")
    if family.head_dim_is_derived and head_dim != derived:
        raise config.refusal("head_dim", f"is {head_dim}; want {derived}, hidden_size / num_attention_heads")
    return head_dim


def _num_kv_heads(config: ConfigFile) -> int:
    num_heads = config.count("num_attention_heads", most=MAX_HEADS)
    num_kv_heads = config.count("num_key_value_heads") if "num_key_value_heads" in config else num_heads
    if num_heads % num_kv_heads:
        raise config.refusal("num_key_value_heads", f"is {num_kv_heads}; want a divisor of {num_heads} heads")
    return num_kv_heads


def _softcap(config: ConfigFile, key: str) -> float | None:
    return config.number(key) if key in config else None


def _mlp(config: ConfigFile, family: Family) -> MlpSpec:
    activation = config.choice(family.activation_key, ACTIVATIONS)
    divisor = family.intermediate_divisor
    intermediate_size = config.count("intermediate_size", least=divisor) // divisor
    if not family.has_experts:
        has_bias = config.flag("mlp_bias", default=False) if family.mlp_bias is None else family.mlp_bias
        return MlpSpec(activation, intermediate_size, bias=has_bias)
    num_experts, num_taken = config.count("num_local_experts"), config.count("num_experts_per_tok")
    if num_taken > num_experts:
        raise config.refusal("num_experts_per_tok", f"is {num_taken}; want at most num_local_experts, {num_experts}")
    limit, alpha = config.number("swiglu_limit"), config.number("swiglu_alpha")
    return MlpSpec(activation, intermediate_size, num_experts, num_taken, limit, alpha)


# --- layers


def _layers(config: ConfigFile, family: Family) -> tuple[LayerSpec, ...]:
    num_layers = config.count("num_hidden_layers", most=MAX_LAYERS)
    kinds = family.kinds(config, num_layers) if family.kinds else _listed_kinds(config, family, num_layers)
    ropes = {
        kind: rope_of(config, layer_type, by_type=family.rope_by_type, rotated_share=family.rotated_share)
        for layer_type, kind in LAYER_TYPES.items()
        if kind in kinds and (kind is LayerKind.SLIDING or family.rope_on_full)
    }
    return tuple(LayerSpec(index, kind, ropes.get(kind)) for index, kind in enumerate(kinds))


def _listed_kinds(config: ConfigFile, family: Family, num_layers: int) -> list[LayerKind]:
    if "layer_types" not in config:
        slides = [_slides(config, family, index) for index in range(num_layers)]
        return [LayerKind.SLIDING if is_sliding else LayerKind.FULL for is_sliding in slides]
    listed = config.raw("layer_types")
    if not isinstance(listed, list) or len(listed) != num_layers or not set(map(str, listed)) <= set(LAYER_TYPES):
        raise config.refusal("layer_types", f"is {shortened(listed)}; want {num_layers} entries of {SLIDING} or {FULL}")
    if SLIDING in listed and not config.flag("use_sliding_window", default=True):
        raise config.refusal("use_sliding_window", "is not true, though layer_types has sliding layers; fix either")
    return [LAYER_TYPES[layer_type] for layer_type in listed]


def _slides(config: ConfigFile, family: Family, index: int) -> bool:
    """Is this layer sliding, in a file that does not list the layer types?"""
    full_every = config.count("sliding_window_pattern") if config.has("sliding_window_pattern") else family.full_every
    if full_every:
        return (index + 1) % full_every != 0
    if "sliding_window" not in config or not config.flag("use_sliding_window", default=True):
        return False
    return not config.has("max_window_layers") or index >= config.count("max_window_layers", least=0)


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
    """The parameters of one type of layers; the old key is for full layers only, and overrides the new one by key."""
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
