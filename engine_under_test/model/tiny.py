"""A model of each family, small enough for tests, with sliding and full layers where the family has both."""

from copy import deepcopy
from typing import Any

from swarden.engine_under_test.errors import CheckpointError
from swarden.engine_under_test.model.files import FULL, SLIDING
from swarden.engine_under_test.model.spec import ModelSpec
from swarden.engine_under_test.model.spec_config import spec_of

COMMON: dict[str, Any] = {
    "vocab_size": 128,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_hidden_layers": 3,
    "max_position_embeddings": 8192,
    "rope_parameters": {"rope_type": "default", "rope_theta": 10_000.0},
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
ROOT_MEAN_SQUARE = {"rms_norm_eps": 1e-6}
GATED = {**ROOT_MEAN_SQUARE, "hidden_act": "silu"}
HYBRID: dict[str, Any] = {"layer_types": [SLIDING, FULL, SLIDING], "sliding_window": 8}
GEMMA = {
    **ROOT_MEAN_SQUARE,
    **HYBRID,
    "head_dim": 16,
    "query_pre_attn_scalar": 24,
    "hidden_activation": "gelu_pytorch_tanh",
}
QWEN: dict[str, Any] = {
    **GATED,
    "use_sliding_window": True,
    "layer_types": [FULL, SLIDING, SLIDING],
    "sliding_window": 8,
    "max_window_layers": 1,
}
YARN = {
    "rope_type": "yarn",
    "rope_theta": 150_000.0,
    "factor": 8.0,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
    "truncate": False,
    "original_max_position_embeddings": 1024,
}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10_000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}


def by_type(*, sliding_theta: float, full_theta: float) -> dict[str, dict[str, Any]]:
    return {
        SLIDING: {"rope_type": "default", "rope_theta": sliding_theta},
        FULL: {"rope_type": "default", "rope_theta": full_theta},
    }


# The keys of each family that are added to COMMON, or replace it.
TINY: dict[str, dict[str, Any]] = {
    "gemma2": {
        "architectures": ["Gemma2ForCausalLM"],
        "model_type": "gemma2",
        "attn_logit_softcapping": 50.0,
        "final_logit_softcapping": 30.0,
        **GEMMA,
    },
    "gemma3": {
        "architectures": ["Gemma3ForCausalLM"],
        "model_type": "gemma3_text",
        **GEMMA,
        "rope_parameters": by_type(sliding_theta=10_000.0, full_theta=1_000_000.0),
    },
    "gpt-oss": {
        "architectures": ["GptOssForCausalLM"],
        "model_type": "gpt_oss",
        **GATED,
        **HYBRID,
        "head_dim": 16,
        "attention_bias": True,
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
        "rope_parameters": YARN,
    },
    "qwen2": {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", **QWEN},
    "qwen3": {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", **QWEN, "head_dim": 16},
    "mistral": {"architectures": ["MistralForCausalLM"], "model_type": "mistral", **GATED, "sliding_window": 8},
    "cohere2": {
        "architectures": ["Cohere2ForCausalLM"],
        "model_type": "cohere2",
        **HYBRID,
        "hidden_act": "silu",
        "layer_norm_eps": 1e-5,
        "logit_scale": 1.0,
    },
    "olmo3": {
        "architectures": ["Olmo3ForCausalLM"],
        "model_type": "olmo3",
        **GATED,
        **HYBRID,
        "rope_parameters": by_type(sliding_theta=10_000.0, full_theta=500_000.0),
    },
    "llama": {"architectures": ["LlamaForCausalLM"], "model_type": "llama", **GATED, "rope_parameters": LLAMA3},
    "recurrent-gemma": {
        "architectures": ["RecurrentGemmaForCausalLM"],
        "model_type": "recurrent_gemma",
        **ROOT_MEAN_SQUARE,
        "hidden_activation": "gelu_pytorch_tanh",
        "attention_window_size": 8,
        "block_types": ["recurrent", "attention"],
        "lru_width": 48,
        "conv1d_width": 4,
        "logits_soft_cap": 30.0,
    },
    "bamba": {
        "architectures": ["BambaForCausalLM"],
        "model_type": "bamba",
        **GATED,
        "attn_layer_indices": [1],
        "mamba_n_heads": 8,
        "mamba_d_head": "auto",
        "mamba_n_groups": 2,
        "mamba_d_state": 16,
    },
}
RECURRENT = ("recurrent-gemma", "bamba")  # the families with recurrent layers


def tiny_config(family: str, **changes: Any) -> dict[str, Any]:
    """The content of a config.json of `family`, a key of TINY, with `changes`."""
    if family not in TINY:
        raise CheckpointError(f"model: {family!r} is not known; want one of {', '.join(TINY)}")
    return deepcopy(COMMON | TINY[family] | changes)


def tiny_spec(family: str, **changes: Any) -> ModelSpec:
    """The spec of `tiny_config`."""
    return spec_of(tiny_config(family, **changes), f"tiny {family}")
