"""The families: how each one's config.json says what a ModelSpec says."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from engine_under_test.model.config_file import ConfigFile
from engine_under_test.model.layers import ACTIVATIONS
from engine_under_test.model.rope_config import rope_of
from engine_under_test.model.spec import LayerSpec, MlpSpec, ModelSpec, NormKind, NormPlacement, QKNorm

SLIDING, FULL = "sliding_attention", "full_attention"


@dataclass(frozen=True, slots=True)
class Family:
    """What sets an architecture apart where its config.json does not say so.

    `full_every`: which layers are full where the file does not list them: each n-th, or with 0 none.
    `windowed_from_layer`: the file says from which layer on they slide, and whether any does.
    `head_dim` of None: hidden_size over heads.  `qkv_bias`, `output_bias` of None: the file says.
    `must_write`: keys without which transformers takes a value that is not none.
    `rope_by_type`: sliding and full layers rotate differently; old files have the former's base in `sliding_theta_key`.
    """

    full_every: int = 0
    windowed_from_layer: bool = False
    head_dim: int | None = None
    norm_eps_key: str = "rms_norm_eps"
    activation_key: str = "hidden_act"
    scale_key: str | None = None
    softcaps_attention: bool = False
    softcaps_logits: bool = False
    must_write: tuple[str, ...] = ()
    scales_embeddings: bool = False
    scales_logits: bool = False
    has_sinks: bool = False
    has_experts: bool = False
    rope_by_type: bool = False
    sliding_theta_key: str = "rope_theta"
    rope_on_full: bool = True
    rope_interleaved: bool = False
    qkv_bias: bool | None = None
    output_bias: bool | None = None
    norm_kind: NormKind = NormKind.RMS
    norm_placement: NormPlacement = NormPlacement.BEFORE
    one_plus_weight: bool = False
    qk_norm: QKNorm = QKNorm.NONE
    tied_embeddings: bool = False


FAMILIES = {
    "Gemma2ForCausalLM": Family(
        full_every=2,
        head_dim=256,
        activation_key="hidden_activation",
        scale_key="query_pre_attn_scalar",
        softcaps_attention=True,
        softcaps_logits=True,
        must_write=("attn_logit_softcapping", "final_logit_softcapping"),
        scales_embeddings=True,
        norm_placement=NormPlacement.AROUND,
        one_plus_weight=True,
        tied_embeddings=True,
    ),
    "Gemma3ForCausalLM": Family(
        full_every=6,
        head_dim=256,
        activation_key="hidden_activation",
        scale_key="query_pre_attn_scalar",
        softcaps_logits=True,
        scales_embeddings=True,
        rope_by_type=True,
        sliding_theta_key="rope_local_base_freq",
        norm_placement=NormPlacement.AROUND,
        one_plus_weight=True,
        qk_norm=QKNorm.HEAD,
        tied_embeddings=True,
    ),
    "GptOssForCausalLM": Family(full_every=2, head_dim=64, has_sinks=True, has_experts=True),
    "Qwen2ForCausalLM": Family(windowed_from_layer=True, qkv_bias=True, output_bias=False),
    "Qwen3ForCausalLM": Family(windowed_from_layer=True, head_dim=128, qk_norm=QKNorm.HEAD),
    "MistralForCausalLM": Family(qkv_bias=False, output_bias=False),
    "Cohere2ForCausalLM": Family(
        full_every=4,
        norm_eps_key="layer_norm_eps",
        scales_logits=True,
        rope_on_full=False,
        rope_interleaved=True,
        norm_kind=NormKind.LAYER,
        norm_placement=NormPlacement.PARALLEL,
        tied_embeddings=True,
    ),
    "Olmo3ForCausalLM": Family(
        full_every=4, rope_by_type=True, norm_placement=NormPlacement.AFTER, qk_norm=QKNorm.PROJECTION
    ),
}


def spec_of(values: Mapping[str, Any], source: str = "config.json") -> ModelSpec:
    """The spec that a config.json's `values` describe; raises CheckpointError, naming `source` and the key."""
    config = ConfigFile(values, source)
    architecture = _architecture(config)
    family = FAMILIES[architecture]
    _refuse_what_is_not_understood(config, family)
    hidden_size, num_heads = config.count("hidden_size"), config.count("num_attention_heads")
    head_dim = _head_dim(config, family)
    layers = _layers(config, family)
    biased = config.flag("attention_bias", default=False)
    scale_of = config.number(family.scale_key) if family.scale_key else float(head_dim)
    return ModelSpec(
        architecture=architecture,
        vocab_size=config.count("vocab_size"),
        hidden_size=hidden_size,
        num_heads=num_heads,
        num_kv_heads=_num_kv_heads(config),
        head_dim=head_dim,
        layers=layers,
        sliding_window=config.count("sliding_window") if any(layer.is_sliding for layer in layers) else None,
        max_context_len=config.count("max_position_embeddings"),
        mlp=_mlp(config, family),
        attention_scale=scale_of**-0.5,
        norm_eps=config.number(family.norm_eps_key),
        attention_softcap=_softcap(config, "attn_logit_softcapping"),
        final_softcap=_softcap(config, "final_logit_softcapping"),
        logit_scale=config.number("logit_scale") if family.scales_logits else 1.0,
        embedding_scale=hidden_size**0.5 if family.scales_embeddings else 1.0,
        has_sinks=family.has_sinks,
        norm_kind=family.norm_kind,
        norm_placement=family.norm_placement,
        one_plus_weight=family.one_plus_weight,
        qk_norm=family.qk_norm,
        qkv_bias=biased if family.qkv_bias is None else family.qkv_bias,
        output_bias=biased if family.output_bias is None else family.output_bias,
        rope_interleaved=family.rope_interleaved,
        tied_embeddings=config.flag("tie_word_embeddings", default=family.tied_embeddings),
        bos_token_id=next(iter(config.token_ids("bos_token_id")), None),
        eos_token_ids=config.token_ids("eos_token_id"),
    )


def _architecture(config: ConfigFile) -> str:
    named = config.raw("architectures")
    supported = ", ".join(FAMILIES)
    if not isinstance(named, list) or len(named) != 1 or named[0] not in FAMILIES:
        raise config.refusal("architectures", f"is {named!r}; want one of {supported}")
    return str(named[0])


def _refuse_what_is_not_understood(config: ConfigFile, family: Family) -> None:
    if "quantization_config" in config:
        raise config.refusal("quantization_config", "is there; want weights that are not quantized")
    if config.flag("use_bidirectional_attention", default=False):
        raise config.refusal("use_bidirectional_attention", "is true; want a causal model")
    for key, expected in (
        ("attn_logit_softcapping", family.softcaps_attention),
        ("final_logit_softcapping", family.softcaps_logits),
        ("partial_rotary_factor", False),
    ):
        if key in config and not expected:
            raise config.refusal(key, "is not understood for this architecture; want null")
    for key in family.must_write:
        if not config.has(key):
            raise config.refusal(key, "is missing; write null where there is none")


def _head_dim(config: ConfigFile, family: Family) -> int:
    hidden_size, num_heads = config.count("hidden_size"), config.count("num_attention_heads")
    head_dim = config.count("head_dim") if "head_dim" in config else family.head_dim or hidden_size // num_heads
    if head_dim % 2:
        raise config.refusal("head_dim", f"is {head_dim}; want an even number, which can be rotated in pairs")
    return head_dim


def _num_kv_heads(config: ConfigFile) -> int:
    num_heads = config.count("num_attention_heads")
    num_kv_heads = config.count("num_key_value_heads") if "num_key_value_heads" in config else num_heads
    if num_heads % num_kv_heads:
        raise config.refusal("num_key_value_heads", f"is {num_kv_heads}; want a divisor of {num_heads} heads")
    return num_kv_heads


def _softcap(config: ConfigFile, key: str) -> float | None:
    return config.number(key) if key in config else None


def _mlp(config: ConfigFile, family: Family) -> MlpSpec:
    activation = config.choice(family.activation_key, ACTIVATIONS)
    intermediate_size = config.count("intermediate_size")
    if not family.has_experts:
        return MlpSpec(activation, intermediate_size)
    dense = MlpSpec(activation, intermediate_size, config.count("num_local_experts"))
    taken = config.count("num_experts_per_tok")
    if taken > dense.num_experts:
        raise config.refusal("num_experts_per_tok", f"is {taken}; want at most num_local_experts, {dense.num_experts}")
    return dense._replace(
        experts_per_token=taken,
        limit=config.number("swiglu_limit") if "swiglu_limit" in config else dense.limit,
        alpha=config.number("swiglu_alpha") if "swiglu_alpha" in config else dense.alpha,
    )


# --- layers


def _layers(config: ConfigFile, family: Family) -> tuple[LayerSpec, ...]:
    layer_types = _layer_types(config, family)
    ropes = {
        layer_type: rope_of(
            config,
            layer_type,
            by_type=family.rope_by_type,
            old_theta_key=family.sliding_theta_key if layer_type == SLIDING else "rope_theta",
        )
        for layer_type in dict.fromkeys(layer_types)
        if layer_type == SLIDING or family.rope_on_full
    }
    return tuple(
        LayerSpec(index, layer_type == SLIDING, ropes.get(layer_type)) for index, layer_type in enumerate(layer_types)
    )


def _layer_types(config: ConfigFile, family: Family) -> list[str]:
    num_layers = config.count("num_hidden_layers")
    implied = [SLIDING if _slides(config, family, index) else FULL for index in range(num_layers)]
    if "layer_types" not in config:
        return implied
    listed = config.raw("layer_types")
    if not isinstance(listed, list) or len(listed) != num_layers or not set(map(str, listed)) <= {SLIDING, FULL}:
        raise config.refusal("layer_types", f"is {listed!r}; want {num_layers} times {SLIDING} or {FULL}")
    if family.windowed_from_layer and SLIDING in listed and not config.flag("use_sliding_window", default=False):
        raise config.refusal("use_sliding_window", "is not true, though layer_types has layers that slide; mend either")
    if not family.full_every and not family.windowed_from_layer and listed != implied:
        raise config.refusal("layer_types", f"is not understood for this architecture; want {implied[0]} throughout")
    return listed


def _slides(config: ConfigFile, family: Family, index: int) -> bool:
    """Whether a layer slides where the file does not list them."""
    if family.windowed_from_layer:
        return config.flag("use_sliding_window", default=False) and index >= config.count("max_window_layers", least=0)
    full_every = config.count("sliding_window_pattern") if "sliding_window_pattern" in config else family.full_every
    if full_every:
        return (index + 1) % full_every != 0
    return "sliding_window" in config
