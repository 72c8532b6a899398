"""The model families: how to read a ModelSpec from the config.json of each."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from reprlib import repr as shortened
from typing import Any

import torch

from swarden.engine_under_test.limits import MAX_CONTEXT_LEN, MAX_CONV_LEN, MAX_HEAD_DIM, MAX_HEADS, MAX_STATE_SIZE
from swarden.engine_under_test.model.files import ConfigFile
from swarden.engine_under_test.model.layers import ACTIVATIONS
from swarden.engine_under_test.model.spec import LayerKind, Mamba2Spec, NormKind, NormPlacement, QKNorm, RgLruSpec

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
BLOCK_KINDS = {"recurrent": LayerKind.RECURRENT, "attention": LayerKind.SLIDING}
MOST_REPETITIONS = 100  # of the list of blocks, by transformers


def unscaled(_hidden_size: int) -> float:
    return 1.0


def root(hidden_size: int) -> float:
    return math.sqrt(hidden_size)


def root_in_bfloat16(hidden_size: int) -> float:
    rounded: float = torch.tensor(math.sqrt(hidden_size), dtype=torch.bfloat16).item()
    return rounded


@dataclass(frozen=True, slots=True)
class Family:
    """The properties of an architecture that its config.json does not have.

    `defaults`, `fixed`, `harmless`: as DEFAULTS, FIXED and HARMLESS, for this family.  Any other key is an error.
    `full_every`: where the file lists no layer types, and has no `sliding_window_pattern`, each n-th layer is full.
    With 0 all are full, or, if the file uses a sliding window, all are sliding (from `max_window_layers` on).
    """

    model_type: str
    defaults: Mapping[str, Any]
    fixed: Mapping[str, Any] = field(default_factory=dict)
    harmless: frozenset[str] = frozenset()
    full_every: int = 0
    kinds: Callable[[ConfigFile, int], list[LayerKind]] | None = None  # how to read them, if recurrent
    recurrence: Callable[[ConfigFile], RgLruSpec | Mamba2Spec] | None = None  # how to read it
    window_key: str = "sliding_window"
    final_softcap_key: str = "final_logit_softcapping"
    norm_eps_key: str = "rms_norm_eps"
    activation_key: str = "hidden_act"
    embedding_scale: Callable[[int], float] = unscaled
    head_dim_is_derived: bool = False  # any other than hidden_size / num_attention_heads is an error
    intermediate_divisor: int = 1  # an MLP has intermediate_size / intermediate_divisor units
    rotated_share: float = 1.0
    has_sinks: bool = False
    has_experts: bool = False
    rope_by_type: bool = False  # sliding and full layers have different rotary embeddings
    rope_on_full: bool = True
    rope_interleaved: bool = False
    qkv_bias: bool | None = None  # None where the file has it, as of the next two
    output_bias: bool | None = None
    mlp_bias: bool | None = None
    norm_kind: NormKind = NormKind.RMS
    norm_placement: NormPlacement = NormPlacement.BEFORE
    one_plus_weight: bool = False
    qk_norm: QKNorm = QKNorm.NONE


def recurrent_gemma_kinds(config: ConfigFile, num_layers: int) -> list[LayerKind]:
    """The kinds of the layers of a RecurrentGemma: the listed blocks, repeated."""
    listed = config.items("block_types", what=" or ".join(BLOCK_KINDS))
    if not listed or not all(isinstance(kind, str) and kind in BLOCK_KINDS for kind in listed):
        raise config.refusal("block_types", f"is {shortened(listed)}; want a list of {' or '.join(BLOCK_KINDS)}")
    if num_layers > MOST_REPETITIONS * len(listed):
        raise config.refusal(
            "block_types",
            f"has {len(listed)} entries; want enough for {num_layers} layers, each at most {MOST_REPETITIONS} times",
        )
    return [BLOCK_KINDS[listed[index % len(listed)]] for index in range(num_layers)]


def bamba_kinds(config: ConfigFile, num_layers: int) -> list[LayerKind]:
    """The kinds of the layers of a Bamba: attention in the listed ones, a recurrence in the others."""
    listed = config.items("attn_layer_indices", what="layers") if "attn_layer_indices" in config else []
    if not all(type(layer) is int and 0 <= layer < num_layers for layer in listed):
        raise config.refusal(
            "attn_layer_indices", f"is {shortened(listed)}; want a list of integers from 0 to {num_layers - 1}"
        )
    attention = frozenset(listed)
    return [LayerKind.FULL if index in attention else LayerKind.RECURRENT for index in range(num_layers)]


def rg_lru_of(config: ConfigFile) -> RgLruSpec:
    """The recurrence of a RecurrentGemma; raises CheckpointError."""
    num_blocks = config.count("num_attention_heads", most=MAX_HEADS)
    key = "lru_width" if "lru_width" in config else "hidden_size"
    width = config.count(key)
    if width % num_blocks:
        raise config.refusal(key, f"is {width}; want a multiple of num_attention_heads, {num_blocks}")
    spec = RgLruSpec(width, num_blocks, _conv_len(config, "conv1d_width"), _activation(config, "hidden_activation"))
    _check_state(config, "conv1d_width", spec)
    return spec


def mamba2_of(config: ConfigFile) -> Mamba2Spec:
    """The recurrence of a Bamba; raises CheckpointError."""
    num_heads, num_groups = config.count("mamba_n_heads", most=MAX_HEADS), config.count("mamba_n_groups")
    width = config.count("mamba_expand") * config.count("hidden_size")
    if width % num_heads:
        raise config.refusal("mamba_n_heads", f"is {num_heads}; want a divisor of mamba_expand * hidden_size, {width}")
    head_dim = width // num_heads
    if config.raw("mamba_d_head") not in ("auto", head_dim):
        raise config.refusal(
            "mamba_d_head",
            f"is {shortened(config.raw('mamba_d_head'))}; want {head_dim}, mamba_expand * hidden_size / mamba_n_heads",
        )
    if num_heads % num_groups:
        raise config.refusal("mamba_n_groups", f"is {num_groups}; want a divisor of {num_heads} heads")
    spec = Mamba2Spec(
        num_heads=num_heads,
        head_dim=head_dim,
        num_groups=num_groups,
        state_dim=config.count("mamba_d_state", most=MAX_HEAD_DIM),
        conv_len=_conv_len(config, "mamba_d_conv"),
        activation=_activation(config, "hidden_act"),
        conv_bias=config.flag("mamba_conv_bias", default=True),
        projection_bias=config.flag("mamba_proj_bias", default=False),
    )
    _check_state(config, "mamba_d_state", spec)
    return spec


def _conv_len(config: ConfigFile, key: str) -> int:
    return config.count(key, least=2, most=MAX_CONV_LEN)


def _activation(config: ConfigFile, key: str) -> str:
    return config.choice(key, ACTIVATIONS)


def _check_state(config: ConfigFile, key: str, spec: RgLruSpec | Mamba2Spec) -> None:
    if spec.state_size > MAX_STATE_SIZE:
        raise config.refusal(
            key, f"makes a state of {spec.state_size} values in each layer; want at most {MAX_STATE_SIZE}"
        )


FAMILIES = {
    "Gemma2ForCausalLM": Family(
        "gemma2",
        GEMMA | {"attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0},
        harmless=frozenset({"hidden_act", "sliding_window_size"}),
        full_every=2,
        activation_key="hidden_activation",
        embedding_scale=root,
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
        embedding_scale=root,
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
        "mistral", GATED | SLIDES | {"num_key_value_heads": 8, "eos_token_id": 2}, qkv_bias=False, output_bias=False
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
        mlp_bias=False,
        fixed={"mlp_bias": False, "rope_interleaved": False, "is_llama_config": True},
        full_every=1,
    ),
    "RecurrentGemmaForCausalLM": Family(
        "recurrent_gemma",
        DEFAULTS
        | {
            "attention_bias": False,
            "attention_window_size": 2048,
            "block_types": ["recurrent", "recurrent", "attention"],
            "conv1d_width": 4,
            "hidden_activation": "gelu_pytorch_tanh",
            "logits_soft_cap": 30.0,
            "lru_width": None,
            "max_position_embeddings": MAX_CONTEXT_LEN,
            "rms_norm_eps": 1e-6,
            "tie_word_embeddings": True,
            "eos_token_id": 1,
        },
        harmless=frozenset({"w_init_variance_scale", "final_w_init_variance_scale"}),
        kinds=recurrent_gemma_kinds,
        recurrence=rg_lru_of,
        window_key="attention_window_size",
        final_softcap_key="logits_soft_cap",
        activation_key="hidden_activation",
        embedding_scale=root_in_bfloat16,
        head_dim_is_derived=True,
        intermediate_divisor=2,
        rotated_share=0.5,
        output_bias=True,
        mlp_bias=True,
        one_plus_weight=True,
    ),
    "BambaForCausalLM": Family(
        "bamba",
        GATED
        | {
            "num_key_value_heads": 8,
            "rms_norm_eps": 1e-5,
            "attention_bias": False,
            "attn_layer_indices": None,
            "mamba_conv_bias": True,
            "mamba_d_conv": 4,
            "mamba_d_head": "auto",
            "mamba_d_state": 256,
            "mamba_expand": 2,
            "mamba_n_groups": 1,
            "mamba_n_heads": 128,
            "mamba_proj_bias": False,
            "mlp_bias": False,
            "eos_token_id": 2,
        },
        # Other limits of dt apply to prompts only in transformers.
        fixed={"time_step_limit": [0.0, math.inf]},
        harmless=frozenset({"mamba_chunk_size", "num_logits_to_keep", "z_loss_coefficient"}),
        kinds=bamba_kinds,
        recurrence=mamba2_of,
        rotated_share=0.5,
    ),
}
