"""Random config.json files: usual and unusual values, old and new keys, and contradictions between them.

A key with the value ABSENT is omitted.  A quarter of the files have one unusual value.
"""

import math
from random import Random
from typing import Any

ABSENT: Any = object()
SLIDING, FULL = "sliding_attention", "full_attention"
LAYER_TYPES, PATTERN, WINDOW = "layer_types", "sliding_window_pattern", "sliding_window"

# hidden_size, num_attention_heads, num_key_value_heads, head_dim
SHAPES = [(32, 4, 2, ABSENT), (32, 4, 4, 16), (48, 3, 1, 16), (64, 8, ABSENT, ABSENT), (32, 8, 8, 8), (72, 9, 3, 8)]
USUAL: dict[str, list[Any]] = {
    "vocab_size": [96],
    "intermediate_size": [40, 64],
    "num_hidden_layers": [2, 3, 4],
    "max_position_embeddings": [256, 64, 4096],
    "initializer_range": [0.02, 0.5, ABSENT],
    "use_cache": [True, False, ABSENT],
    "pad_token_id": [0, None, 5, ABSENT],
    "bos_token_id": [1, None, ABSENT],
    "eos_token_id": [2, [2, 3], None, ABSENT],
    "tie_word_embeddings": [True, False, ABSENT],
    "attention_dropout": [0.0, 0.1, ABSENT],
    # Of every configuration class, or of files that older versions wrote.
    "transformers_version": ["4.50.0", ABSENT],
    "dtype": ["bfloat16", ABSENT],
    "torch_dtype": ["float32", "bfloat16", ABSENT],
    "output_hidden_states": [ABSENT, False],
    "return_dict": [ABSENT, True],
    "chunk_size_feed_forward": [ABSENT, 0],
    "is_encoder_decoder": [ABSENT, False],
    "id2label": [ABSENT, None],
    "label2id": [ABSENT, None],
    "problem_type": [ABSENT, None],
    "_name_or_path": ["", ABSENT],
    "cache_implementation": [ABSENT, "hybrid"],
    "_attn_implementation_autoset": [ABSENT, True],
    "partial_rotary_factor": [ABSENT, ABSENT, None, 1.0],
    PATTERN: [*[ABSENT] * 14, 2, 3],  # which most families do not read
}
ACTIVATIONS = ["silu", "gelu", "gelu_pytorch_tanh", ABSENT]
ROOT_MEAN_SQUARE = {"rms_norm_eps": [1e-6, 1e-5, 1e-2, ABSENT]}
BIAS = {"attention_bias": [False, True, ABSENT]}
SLIDES = {WINDOW: [8, 13, 5]}
HALF_ROTATED = {"partial_rotary_factor": [ABSENT, ABSENT, 0.5, 0.5, None]}
GEMMA = {
    **ROOT_MEAN_SQUARE,
    **BIAS,
    **SLIDES,
    "hidden_activation": ACTIVATIONS,
    "hidden_act": [ABSENT, "gelu", "silu"],
    "query_pre_attn_scalar": [24, 16, ABSENT],
    "use_bidirectional_attention": [ABSENT, None, False],
}
QWEN = {
    **ROOT_MEAN_SQUARE,
    **SLIDES,
    "hidden_act": ACTIVATIONS,
    "use_sliding_window": [True, True, False, ABSENT],
    "max_window_layers": [1, 2, 0, 28, ABSENT],
}
OWN: dict[str, dict[str, list[Any]]] = {
    "gemma2": GEMMA
    | {"final_logit_softcapping": [30.0, 2.0, None, ABSENT], "attn_logit_softcapping": [50.0, 0.5, None, ABSENT]},
    "gemma3_text": GEMMA
    | {
        "num_hidden_layers": [2, 3, 4, 7],
        "final_logit_softcapping": [None, 2.0, ABSENT],
        "attn_logit_softcapping": [None, ABSENT],
        PATTERN: [ABSENT, 2, 3, 6],
        "_sliding_window_pattern": [ABSENT, 2],
    },
    "gpt_oss": ROOT_MEAN_SQUARE
    | BIAS
    | SLIDES
    | {
        "hidden_act": ["silu", ABSENT],
        "num_local_experts": [4, 8],
        "num_experts_per_tok": [2, 1, 4],
        "swiglu_alpha": [ABSENT, 1.702, 1.0],
        "swiglu_limit": [7.0, 0.5, ABSENT],
        "router_aux_loss_coef": [0.9, ABSENT],
        "output_router_logits": [False, ABSENT],
        "experts_per_token": [ABSENT, 4],
        "initial_context_length": [ABSENT, 4096],
    },
    "qwen2": QWEN,
    "qwen3": QWEN | BIAS,
    "mistral": {**ROOT_MEAN_SQUARE, "hidden_act": ACTIVATIONS, WINDOW: [8, 13, None, ABSENT]},
    "cohere2": {
        **BIAS,
        **SLIDES,
        "hidden_act": ACTIVATIONS,
        "layer_norm_eps": [1e-5, 1e-2, ABSENT],
        "logit_scale": [1.0, 0.25, ABSENT],
        PATTERN: [ABSENT, 2, 3, 4],
        "use_qk_norm": [ABSENT, False],
        "position_embedding_type": [ABSENT, "rope_gptj"],
    },
    "olmo3": {**ROOT_MEAN_SQUARE, **BIAS, **SLIDES, "hidden_act": ACTIVATIONS},
    "llama": {
        **ROOT_MEAN_SQUARE,
        **BIAS,
        "hidden_act": ACTIVATIONS,
        "mlp_bias": [False, ABSENT],
        "pretraining_tp": [1, 2, ABSENT],
        "rope_interleaved": [ABSENT, False],
        "is_llama_config": [ABSENT, True],
    },
    "recurrent_gemma": {
        **ROOT_MEAN_SQUARE,
        **BIAS,
        "num_hidden_layers": [2, 3, 4, 7],
        "hidden_activation": ACTIVATIONS,
        "attention_window_size": [8, 13, 5],
        "block_types": [["recurrent", "attention"], ["attention", "recurrent", "recurrent"], ["recurrent"], ABSENT],
        "lru_width": [ABSENT, None, 72, 144],
        "conv1d_width": [4, 2, ABSENT],
        "logits_soft_cap": [30.0, 2.0, ABSENT],
        "w_init_variance_scale": [0.01, ABSENT],
        "final_w_init_variance_scale": [ABSENT, 0.1],
        "max_position_embeddings": [ABSENT, 256],
        **HALF_ROTATED,
    },
    "bamba": {
        **ROOT_MEAN_SQUARE,
        **BIAS,
        "hidden_act": ACTIVATIONS,
        "attn_layer_indices": [[1], [0, 1], [], None, ABSENT],
        **HALF_ROTATED,
        "mamba_n_heads": [8, 4, 2],
        "mamba_d_head": ["auto", ABSENT],
        "mamba_n_groups": [1, 2, ABSENT],
        "mamba_d_state": [16, 8],
        "mamba_d_conv": [4, 2, ABSENT],
        "mamba_expand": [2, 1, ABSENT],
        "mamba_chunk_size": [256, 16, ABSENT],
        "mamba_conv_bias": [True, False, ABSENT],
        "mamba_proj_bias": [False, True, ABSENT],
        "mlp_bias": [False, True, ABSENT],
        "num_logits_to_keep": [1, ABSENT],
        "z_loss_coefficient": [0.0, 0.1, ABSENT],
        "time_step_limit": [ABSENT, [0.0, math.inf]],
    },
}
NO_LAYER_TYPES = ("llama", "recurrent_gemma", "bamba")
ARCHITECTURES = {
    "gemma2": "Gemma2ForCausalLM",
    "gemma3_text": "Gemma3ForCausalLM",
    "gpt_oss": "GptOssForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "mistral": "MistralForCausalLM",
    "cohere2": "Cohere2ForCausalLM",
    "olmo3": "Olmo3ForCausalLM",
    "llama": "LlamaForCausalLM",
    "recurrent_gemma": "RecurrentGemmaForCausalLM",
    "bamba": "BambaForCausalLM",
}
UNUSUAL: dict[str, list[Any]] = {
    PATTERN: [2, 3, 1, None],
    WINDOW: [None, ABSENT, 1, 0],
    LAYER_TYPES: [[FULL], [SLIDING], [FULL, "chunked_attention"], ["attention"] * 3, "sliding_attention"],
    "use_sliding_window": [True, None],
    "use_bidirectional_attention": [True],
    "partial_rotary_factor": [0.5, 2.0],
    "attention_bias": [True, None],
    "mlp_bias": [True, None],
    "head_dim": [None, 7, 64],
    "num_key_value_heads": [None, ABSENT, 3, 0],
    "hidden_size": [None, 40],
    "num_attention_heads": [None, 0],
    "max_position_embeddings": [ABSENT, None],
    "rms_norm_eps": [None, 0.0],
    "hidden_act": ["relu", "swish", None],
    "hidden_activation": ["gelu", "relu", None],
    "attn_logit_softcapping": [5.0],
    "final_logit_softcapping": [5.0],
    "logit_scale": [0.5],
    "query_pre_attn_scalar": [None, 8],
    "num_experts": [8],
    "num_local_experts": [4],
    "swiglu_limit": [None, 1.0],
    "tie_word_embeddings": [None],
    "is_causal": [True, False, None],
    "chunk_size_feed_forward": [8],
    "per_layer_config": [{"0": {"sliding_window": 3}}],
    "quantization_config": [{"quant_method": "mxfp4"}],
    "architectures": [["LlamaForCausalLM"], None, ["Gemma3ForConditionalGeneration"]],
    "model_type": ["llama", "qwen3", ABSENT],
    "attention_multiplier": [2.0],
    "rope_interleaved": [True],
    "rotary_pct": [0.5],
    "rope_local_base_freq": [100.0],
    "rope_theta": [None, 100.0],
    "layer_norm_eps": [1e-2],
    "text_config": [{"hidden_size": 64}],
    "attn_layer_indices": [[9], [True], "1"],
    "block_types": [None, ["recurrent", "full"]],
    "conv1d_width": [1, None],
    "lru_width": [7],
    "mamba_d_head": [16, None],
    "mamba_n_groups": [3],
    "mamba_d_conv": [1],
    "time_step_limit": [[0.0, 0.1], None],
    "sliding_window_size": [9],
    "id2label": [{"0": "no", "1": "yes"}],
    "output_hidden_states": [True],
}
THETAS = [10_000.0, 100.0, 500_000, 1_000_000.0]
ORIGINAL_LENGTHS = [32, 16, 64, 4, 1_000_000]
FACTORS = [8.0, 2, 1.0, 40.0]
YARN_KEYS: dict[str, list[Any]] = {
    "attention_factor": [1.25, 1.0, None],
    "mscale": [1.0, 0.707, 2.0],
    "mscale_all_dim": [1.0, 0.5],
    "beta_fast": [32.0, 4, 1.0, None],
    "beta_slow": [1.0, 2.0, None],
    "truncate": [False, True, None],
}
UNUSUAL_ROPE: dict[str, list[Any]] = {
    "rope_type": ["dynamic", "longrope", "proportional", "su", None],
    "type": ["linear", "default", "yarn"],
    "partial_rotary_factor": [0.5, 1.0],
    "factor": [None, 0.5, ABSENT],
    "mrope_section": [[2, 1, 1]],
    "truncate": [False],
    "short_factor": [[1.0, 1.0]],
    "attention_factor": [2.0],
    "mscale": [2.0],
    "rope_theta": [None, 1.0],
    "unheard_of": [1.0],
}


def drawn_config(random: Random, model_type: str) -> dict[str, Any]:
    """A random config.json of the family `model_type`, a key of OWN."""
    values: dict[str, Any] = {"architectures": [ARCHITECTURES[model_type]], "model_type": model_type}
    values |= {key: random.choice(of_key) for key, of_key in (USUAL | OWN[model_type]).items()}
    hidden_size, heads, kv_heads, head_dim = random.choice(SHAPES)
    values |= {"hidden_size": hidden_size, "num_attention_heads": heads, "num_key_value_heads": kv_heads}
    values["head_dim"] = ABSENT if model_type == "recurrent_gemma" and random.random() < 0.9 else head_dim
    if head_dim is ABSENT and "query_pre_attn_scalar" in values:
        values["query_pre_attn_scalar"] = ABSENT  # the default of 256 would make scores, and their noise, large
    if model_type not in NO_LAYER_TYPES:
        kinds = (SLIDING, FULL) if values.get("use_sliding_window", True) is True else (FULL,)
        values[LAYER_TYPES] = _layer_types(random, values["num_hidden_layers"], kinds)
    values |= _rope(random, model_type)
    if random.random() < 0.25:
        key = random.choice(list(UNUSUAL))
        values[key] = random.choice(UNUSUAL[key])
    return {key: value for key, value in values.items() if value is not ABSENT}


def _layer_types(random: Random, num_layers: int, kinds: tuple[str, ...]) -> Any:
    listed = [random.choice(kinds) for _ in range(num_layers)]
    return random.choice((ABSENT, None, listed, listed))


# --- rope


def _rope(random: Random, model_type: str) -> dict[str, Any]:
    """The new keys, the old keys, both, or neither, and mixtures of them."""
    by_type = model_type in ("gemma3_text", "olmo3")
    if model_type == "recurrent_gemma" and random.random() < 0.8:  # it has the default type only
        return {"rope_theta": random.choice(THETAS)}
    if random.random() < 0.06:
        by_type = not by_type
    new, old, theta, original_len = random.choices(
        (
            (1, 0, 0, 0),
            (0, 1, 1, 0),
            (0, 0, 1, 0),
            (1, 1, 0, 0),
            (1, 1, 1, 1),
            (1, 0, 1, 1),
            (0, 1, 1, 1),
            (0, 0, 0, 0),
        ),
        weights=(30, 20, 8, 8, 8, 10, 10, 6),
    )[0]
    values: dict[str, Any] = {}
    if new:
        values["rope_parameters"] = _parameters_by_type(random) if by_type else _parameters(random)
    if old:
        values["rope_scaling"] = random.choice(
            (_parameters(random, theta=0.1), _parameters(random, theta=0.1), {}, None)
        )
    if theta:
        # Olmo 3 uses a base other than its default for the full layers only.
        values["rope_theta"] = 500_000 if model_type == "olmo3" and random.random() < 0.8 else random.choice(THETAS)
        if model_type == "gemma3_text" and random.random() < 0.7:
            values["rope_local_base_freq"] = random.choice(THETAS)
    if original_len:
        values["original_max_position_embeddings"] = random.choice(ORIGINAL_LENGTHS)
    return values


def _parameters_by_type(random: Random) -> dict[str, Any]:
    values: dict[str, Any] = {SLIDING: _parameters(random), FULL: _parameters(random)}
    if random.random() < 0.15:
        beside: dict[str, Any] = {"truncate": random.choice((True, False, None)), "factor": random.choice((2.0, None))}
        key = random.choice(list(beside))
        values |= random.choice(({FULL: ABSENT}, {SLIDING: ABSENT}, {FULL: None}, {key: beside[key]}))
    return {key: value for key, value in values.items() if value is not ABSENT}


def _parameters(random: Random, *, theta: float = 0.85) -> dict[str, Any]:
    """One object of rope parameters; `theta` is the probability that it has a base."""
    rope_type = random.choices(("default", "linear", "yarn", "llama3"), weights=(3, 2, 5, 2))[0]
    values: dict[str, Any] = {random.choice(("rope_type", "rope_type", "type")): rope_type}
    if random.random() < theta:
        values["rope_theta"] = random.choice(THETAS)
    if rope_type != "default":
        values["factor"] = random.choice(FACTORS)
    if rope_type in ("yarn", "llama3") and random.random() < 0.8:
        values["original_max_position_embeddings"] = random.choice(ORIGINAL_LENGTHS)
    if rope_type == "llama3":
        values |= {"low_freq_factor": random.choice((1.0, 0.5)), "high_freq_factor": random.choice((4.0, 2))}
    if rope_type == "yarn":
        values |= {key: random.choice(of_key) for key, of_key in YARN_KEYS.items() if random.random() < 0.35}
    if random.random() < 0.08:
        key = random.choice(list(UNUSUAL_ROPE))
        values[key] = random.choice(UNUSUAL_ROPE[key])
    return {key: value for key, value in values.items() if value is not ABSENT}
