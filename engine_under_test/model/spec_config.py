"""Reads a ModelSpec from a config.json."""

from collections.abc import Mapping
from reprlib import repr as shortened
from typing import Any

from swarden.engine_under_test.limits import MAX_HEAD_DIM, MAX_HEADS, MAX_LAYERS
from swarden.engine_under_test.model.config_file import FULL, SLIDING, ConfigFile
from swarden.engine_under_test.model.families import FAMILIES, FIXED, HARMLESS, REQUIRED, Family
from swarden.engine_under_test.model.layers import ACTIVATIONS
from swarden.engine_under_test.model.rope_config import rope_of
from swarden.engine_under_test.model.spec import LayerKind, LayerSpec, MlpSpec, ModelSpec

LAYER_TYPES = {FULL: LayerKind.FULL, SLIDING: LayerKind.SLIDING}


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
        return [LayerKind.SLIDING if one else LayerKind.FULL for one in slides]
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
