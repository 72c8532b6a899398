"""The model families: how to read a ModelSpec from the config.json of each."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from reprlib import repr as shortened
from typing import Any

from engine_under_test.limits import MAX_HEAD_DIM, MAX_HEADS, MAX_LAYERS
from engine_under_test.model.config_file import FULL, SLIDING, ConfigFile
from engine_under_test.model.layers import ACTIVATIONS
from engine_under_test.model.rope_config import rope_of
from engine_under_test.model.spec import LayerSpec, MlpSpec, ModelSpec, NormKind, NormPlacement, QKNorm

# --- the keys of a config.json

REQUIRED = (
    "architectures",
    "model_type",
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "max_position_embeddings",
)
HARMLESS = frozenset(
    (
        # The history of the file, and tools.
        *("_name_or_path", "name_or_path", "_commit_hash", "transformers_version", "unsloth_version", "unsloth_fixed"),
        *("transformers.js_config", "tokenizer_class"),
        # Training.
        *("initializer_range", "attention_dropout", "pretraining_tp", "router_aux_loss_coef", "output_router_logits"),
        # Heads for classification.
        *("id2label", "label2id", "num_labels", "problem_type"),
        # How a library runs the model.  Weights are converted to the requested dtype.
        *("dtype", "torch_dtype", "use_cache", "cache_implementation", "output_hidden_states", "output_attentions"),
        *("return_dict", "attn_implementation", "_attn_implementation_autoset", "pad_token_id"),
        # Sampling, which the client chooses.
        *("do_sample", "max_length", "temperature", "top_k", "top_p"),
    )
)
# Keys that no code reads.  Each is accepted only with the value that describes what is computed.
FIXED: dict[str, Any] = {
    "chunk_size_feed_forward": 0,
    "is_causal": True,
    "is_encoder_decoder": False,
    "partial_rotary_factor": 1.0,
    "use_bidirectional_attention": False,
}
# Further keys that every family reads, with the default of transformers.
DEFAULTS: dict[str, Any] = {
    "num_key_value_heads": None,
    "head_dim": None,
    "rope_parameters": {},
    "rope_scaling": {},
    "rope_theta": 10_000.0,
    "original_max_position_embeddings": None,
    "tie_word_embeddings": False,
    "bos_token_id": None,
    "eos_token_id": None,
}
GATED: dict[str, Any] = DEFAULTS | {"hidden_act": "silu", "rms_norm_eps": 1e-6}
SLIDES: dict[str, Any] = {"sliding_window": 4096, "layer_types": None}
GEMMA: dict[str, Any] = (
    DEFAULTS
    | SLIDES
    | {
        "num_key_value_heads": 4,
        "head_dim": 256,
        "hidden_activation": "gelu_pytorch_tanh",
        "rms_norm_eps": 1e-6,
        "attention_bias": False,
        "query_pre_attn_scalar": 256,
        "tie_word_embeddings": True,
        "eos_token_id": 1,
    }
)
QWEN: dict[str, Any] = (
    GATED | SLIDES | {"num_key_value_heads": 32, "use_sliding_window": False, "max_window_layers": 28}
)
GPT_OSS_YARN: dict[str, Any] = {
    "rope_type": "yarn",
    "factor": 32.0,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
    "truncate": False,
    "original_max_position_embeddings": 4096,
}


@dataclass(frozen=True, slots=True)
class Family:
    """The properties of an architecture that its config.json does not have.

    `defaults`, `fixed`, `harmless`: as DEFAULTS, FIXED and HARMLESS, for this family.  Any other key is an error.
    `full_every`: where the file lists no layer types, and has no `sliding_window_pattern`, each n-th layer is full.
    With 0 all are full, or, if the file uses a sliding window, all are sliding (from `max_window_layers` on).
    `rope_by_type`: sliding and full layers have different rotary embeddings.
    `qkv_bias`, `output_bias`: None where the file has them.
    """

    model_type: str
    defaults: Mapping[str, Any]
    fixed: Mapping[str, Any] = field(default_factory=dict)
    harmless: frozenset[str] = frozenset()
    full_every: int = 0
    norm_eps_key: str = "rms_norm_eps"
    activation_key: str = "hidden_act"
    scales_embeddings: bool = False
    has_sinks: bool = False
    has_experts: bool = False
    rope_by_type: bool = False
    rope_on_full: bool = True
    rope_interleaved: bool = False
    qkv_bias: bool | None = None
    output_bias: bool | None = None
    norm_kind: NormKind = NormKind.RMS
    norm_placement: NormPlacement = NormPlacement.BEFORE
    one_plus_weight: bool = False
    qk_norm: QKNorm = QKNorm.NONE


FAMILIES = {
    "Gemma2ForCausalLM": Family(
        "gemma2",
        GEMMA | {"attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0},
        harmless=frozenset({"hidden_act", "sliding_window_size"}),
        full_every=2,
        activation_key="hidden_activation",
        scales_embeddings=True,
        norm_placement=NormPlacement.AROUND,
        one_plus_weight=True,
    ),
    "Gemma3ForCausalLM": Family(
        "gemma3_text",
        GEMMA
        | {
            "final_logit_softcapping": None,
            "rope_theta": 1_000_000.0,
            "rope_local_base_freq": 10_000.0,
            "sliding_window_pattern": 6,
        },
        harmless=frozenset({"hidden_act", "_sliding_window_pattern"}),
        activation_key="hidden_activation",
        scales_embeddings=True,
        rope_by_type=True,
        norm_placement=NormPlacement.AROUND,
        one_plus_weight=True,
        qk_norm=QKNorm.HEAD,
    ),
    "GptOssForCausalLM": Family(
        "gpt_oss",
        GATED
        | {
            "num_key_value_heads": 8,
            "head_dim": 64,
            "rms_norm_eps": 1e-5,
            "attention_bias": True,
            "sliding_window": 128,
            "layer_types": None,
            "rope_theta": 150_000.0,
            "rope_parameters": GPT_OSS_YARN,
            "num_local_experts": 128,
            "num_experts_per_tok": 4,
            "swiglu_alpha": 1.702,
            "swiglu_limit": 7.0,
        },
        harmless=frozenset({"experts_per_token", "initial_context_length"}),
        full_every=2,
        has_sinks=True,
        has_experts=True,
    ),
    "Qwen2ForCausalLM": Family("qwen2", QWEN, fixed={"use_mrope": False}, qkv_bias=True, output_bias=False),
    "Qwen3ForCausalLM": Family("qwen3", QWEN | {"head_dim": 128, "attention_bias": False}, qk_norm=QKNorm.HEAD),
    "MistralForCausalLM": Family(
        "mistral",
        GATED | SLIDES | {"num_key_value_heads": 8, "eos_token_id": 2},
        qkv_bias=False,
        output_bias=False,
    ),
    "Cohere2ForCausalLM": Family(
        "cohere2",
        DEFAULTS
        | SLIDES
        | {
            "hidden_act": "silu",
            "layer_norm_eps": 1e-5,
            "attention_bias": False,
            "logit_scale": 0.0625,
            "sliding_window_pattern": 4,
            "tie_word_embeddings": True,
            "eos_token_id": 255_001,
        },
        fixed={
            "order_of_interleaved_layers": "local_attn_first",
            "position_embedding_type": "rope_gptj",
            "rotary_pct": 1.0,
            "use_gated_activation": True,
            "use_parallel_block": True,
            "use_qk_norm": False,
        },
        harmless=frozenset({"layer_switch", "use_embedding_sharing", "use_parallel_embedding"}),
        norm_eps_key="layer_norm_eps",
        rope_on_full=False,
        rope_interleaved=True,
        norm_kind=NormKind.LAYER,
        norm_placement=NormPlacement.PARALLEL,
    ),
    "Olmo3ForCausalLM": Family(
        "olmo3",
        GATED
        | SLIDES
        | {"rms_norm_eps": 1e-5, "attention_bias": False, "rope_theta": 500_000.0, "eos_token_id": 50_279},
        # transformers would apply another base to the full layers only, which no file intends.
        fixed={"rope_theta": 500_000.0},
        full_every=4,
        rope_by_type=True,
        norm_placement=NormPlacement.AFTER,
        qk_norm=QKNorm.PROJECTION,
    ),
    "LlamaForCausalLM": Family(
        "llama",
        GATED | {"attention_bias": False, "eos_token_id": 2},
        fixed={"mlp_bias": False, "rope_interleaved": False, "is_llama_config": True},
        full_every=1,
    ),
}


def spec_of(values: Mapping[str, Any], source: str = "config.json") -> ModelSpec:
    """The spec that a config.json's `values` describe; raises CheckpointError, naming `source` and the key."""
    config = ConfigFile(values, source)
    architecture = _architecture(config)
    family = FAMILIES[architecture]
    _check_supported(config, architecture)
    config = config.with_defaults(family.defaults)
    hidden_size, num_heads = config.count("hidden_size"), config.count("num_attention_heads", most=MAX_HEADS)
    head_dim = _head_dim(config)
    layers = _layers(config, family)
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
        sliding_window=config.count("sliding_window") if any(layer.is_sliding for layer in layers) else None,
        max_context_len=config.count("max_position_embeddings"),
        mlp=_mlp(config, family),
        attention_scale=scale_of**-0.5,
        norm_eps=config.number(family.norm_eps_key),
        attention_softcap=_softcap(config, "attn_logit_softcapping"),
        final_softcap=_softcap(config, "final_logit_softcapping"),
        logit_scale=config.number("logit_scale") if config.has("logit_scale") else 1.0,
        embedding_scale=hidden_size**0.5 if family.scales_embeddings else 1.0,
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
    read = {*REQUIRED, *family.defaults, *HARMLESS, *family.harmless}
    config.refuse_others(read, {**FIXED, **family.fixed}, reader=architecture)


def _head_dim(config: ConfigFile) -> int:
    derived = config.count("hidden_size") // config.count("num_attention_heads", most=MAX_HEADS)
    head_dim = config.count("head_dim") if "head_dim" in config else derived
    if head_dim % 2 or not 2 <= head_dim <= MAX_HEAD_DIM:
        raise config.refusal(
            "head_dim", f"is {head_dim}; want an even number from 2 to {MAX_HEAD_DIM}, for rotation in pairs"
        )
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
    intermediate_size = config.count("intermediate_size")
    if not family.has_experts:
        return MlpSpec(activation, intermediate_size)
    num_experts, num_taken = config.count("num_local_experts"), config.count("num_experts_per_tok")
    if num_taken > num_experts:
        raise config.refusal("num_experts_per_tok", f"is {num_taken}; want at most num_local_experts, {num_experts}")
    limit, alpha = config.number("swiglu_limit"), config.number("swiglu_alpha")
    return MlpSpec(activation, intermediate_size, num_experts, num_taken, limit, alpha)


# --- layers


def _layers(config: ConfigFile, family: Family) -> tuple[LayerSpec, ...]:
    layer_types = _layer_types(config, family)
    ropes = {
        layer_type: rope_of(config, layer_type, by_type=family.rope_by_type)
        for layer_type in dict.fromkeys(layer_types)
        if layer_type == SLIDING or family.rope_on_full
    }
    return tuple(
        LayerSpec(index, layer_type == SLIDING, ropes.get(layer_type)) for index, layer_type in enumerate(layer_types)
    )


def _layer_types(config: ConfigFile, family: Family) -> list[str]:
    num_layers = config.count("num_hidden_layers", most=MAX_LAYERS)
    if "layer_types" not in config:
        return [SLIDING if _slides(config, family, index) else FULL for index in range(num_layers)]
    listed = config.raw("layer_types")
    if not isinstance(listed, list) or len(listed) != num_layers or not set(map(str, listed)) <= {SLIDING, FULL}:
        raise config.refusal("layer_types", f"is {shortened(listed)}; want {num_layers} entries of {SLIDING} or {FULL}")
    if SLIDING in listed and not config.flag("use_sliding_window", default=True):
        raise config.refusal("use_sliding_window", "is not true, though layer_types has sliding layers; fix either")
    return listed


def _slides(config: ConfigFile, family: Family, index: int) -> bool:
    """Is this layer sliding?  For a file that does not list the layer types."""
    full_every = config.count("sliding_window_pattern") if config.has("sliding_window_pattern") else family.full_every
    if full_every:
        return (index + 1) % full_every != 0
    if "sliding_window" not in config or not config.flag("use_sliding_window", default=True):
        return False
    return not config.has("max_window_layers") or index >= config.count("max_window_layers", least=0)
