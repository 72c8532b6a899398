"""The spec of each family's config.json, and the errors for unsupported ones."""

import json
from pathlib import Path

import pytest
from transformers import AutoConfig

from swarden.engine_under_test.errors import CheckpointError
from swarden.engine_under_test.model.files import FULL, SLIDING
from swarden.engine_under_test.model.spec import LayerKind, LayerSpec, RopeSpec
from swarden.engine_under_test.model.spec_config import spec_of
from swarden.engine_under_test.model.tiny import LLAMA3, YARN, tiny_config, tiny_spec


@pytest.mark.parametrize("path", sorted(Path(__file__).with_name("published").iterdir()), ids=lambda path: path.stem)
def test_published_config_has_the_same_spec_when_transformers_rewrites_it(path):
    """The files of well-known checkpoints are complete; a rewritten one has the keys of transformers 5 only."""
    values = json.loads(path.read_text())
    written_again = AutoConfig.for_model(**values).to_dict()

    assert "rope_parameters" in written_again
    assert spec_of(values) == spec_of(written_again)


# --- files of older versions


def old(family, **written):
    """A config.json from before transformers 5: no layer types, no rope parameters."""
    values = tiny_config(family)
    for key in ("layer_types", "rope_parameters"):
        values.pop(key, None)
    return spec_of(values | written)


@pytest.mark.parametrize(
    ("family", "slides"),
    [
        ("gemma2", [True, False, True, False, True, False]),
        ("gemma3", [True, True, True, True, True, False]),
        ("gpt-oss", [True, False, True, False, True, False]),
        ("cohere2", [True, True, True, False, True, True]),
        ("olmo3", [True, True, True, False, True, True]),
        ("mistral", [True, True, True, True, True, True]),
        ("qwen2", [False, True, True, True, True, True]),
        ("qwen3", [False, True, True, True, True, True]),
        ("llama", [False, False, False, False, False, False]),
    ],
)
def test_layer_types_without_a_list_follow_the_pattern_of_the_family(family, slides):
    spec = old(family, num_hidden_layers=6)

    assert [layer.kind is LayerKind.SLIDING for layer in spec.layers] == slides


def test_full_layers_of_cohere2_have_no_rotary_embedding():
    spec = tiny_spec("cohere2")

    assert spec.layers[1] == LayerSpec(1, LayerKind.FULL, None)
    assert spec.ropes == (RopeSpec(10_000.0),)


# --- unsupported configurations

HALF_ROTATED = {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5}


@pytest.mark.parametrize(
    ("family", "changes", "key"),
    [
        ("gemma3", {"architectures": ["GPT2LMHeadModel"]}, "architectures"),
        ("gemma3", {"architectures": None}, "architectures"),
        ("gemma3", {"model_type": "gemma3"}, "model_type"),
        ("gemma3", {"text_config": {}}, "text_config"),
        ("gemma3", {"hidden_size": None}, "hidden_size"),
        ("gemma3", {"hidden_size": "64"}, "hidden_size"),
        ("gemma3", {"num_hidden_layers": 0}, "num_hidden_layers"),
        ("gemma3", {"rms_norm_eps": -1.0}, "rms_norm_eps"),
        ("gemma3", {"num_key_value_heads": 3}, "num_key_value_heads"),
        ("gemma3", {"head_dim": 15}, "head_dim"),
        ("gemma3", {"hidden_activation": "relu"}, "hidden_activation"),
        ("gemma3", {"sliding_window": None}, "sliding_window"),
        ("gemma3", {"layer_types": [SLIDING, FULL]}, "layer_types"),
        ("gemma3", {"layer_types": ["chunked_attention"] * 3}, "layer_types"),
        ("qwen2", {"use_sliding_window": False}, "use_sliding_window"),
        ("gemma3", {"attn_logit_softcapping": 50.0}, "attn_logit_softcapping"),
        ("gemma2", {"sliding_window_pattern": 3}, "sliding_window_pattern"),
        ("llama", {"sliding_window": 8}, "sliding_window"),
        ("llama", {"mlp_bias": True}, "mlp_bias"),
        ("qwen2", {"quantization_config": {"bits": 4}}, "quantization_config"),
        ("gemma3", {"use_bidirectional_attention": True}, "use_bidirectional_attention"),
        ("gemma3", {"attention_bias": "yes"}, "attention_bias"),
        ("gemma3", {"eos_token_id": "</s>"}, "eos_token_id"),
        ("recurrent-gemma", {"block_types": []}, "block_types"),
        ("recurrent-gemma", {"block_types": "recurrent"}, "block_types"),
        ("recurrent-gemma", {"block_types": ["recurrent", ["attention"]]}, "block_types"),
        ("recurrent-gemma", {"num_hidden_layers": 201}, "block_types"),
        ("recurrent-gemma", {"lru_width": 50}, "lru_width"),
        ("recurrent-gemma", {"lru_width": 1 << 30}, "lru_width"),
        ("recurrent-gemma", {"lru_width": 1 << 23}, "conv1d_width"),
        ("recurrent-gemma", {"conv1d_width": 1}, "conv1d_width"),
        ("recurrent-gemma", {"conv1d_width": 1000}, "conv1d_width"),
        ("recurrent-gemma", {"head_dim": 32}, "head_dim"),
        ("recurrent-gemma", {"num_attention_heads": 32}, "head_dim"),
        ("recurrent-gemma", {"attention_window_size": 0}, "attention_window_size"),
        ("recurrent-gemma", {"partial_rotary_factor": 1.0}, "partial_rotary_factor"),
        ("bamba", {"attn_layer_indices": [3]}, "attn_layer_indices"),
        ("bamba", {"attn_layer_indices": [[]]}, "attn_layer_indices"),
        ("bamba", {"attn_layer_indices": 1}, "attn_layer_indices"),
        ("bamba", {"mamba_n_heads": 7}, "mamba_n_heads"),
        ("bamba", {"mamba_n_heads": 2048}, "mamba_n_heads"),
        ("bamba", {"mamba_d_head": 32}, "mamba_d_head"),
        ("bamba", {"mamba_d_head": []}, "mamba_d_head"),
        ("bamba", {"mamba_n_groups": 3}, "mamba_n_groups"),
        ("bamba", {"mamba_d_state": 2048}, "mamba_d_state"),
        ("bamba", {"mamba_expand": 1 << 24, "mamba_d_head": "auto"}, "mamba_d_state"),
        ("bamba", {"time_step_limit": [0.0, 0.1]}, "time_step_limit"),
        ("gpt-oss", {"num_experts_per_tok": 5}, "num_experts_per_tok"),
        ("qwen2", {"rope_parameters": {}, "rope_theta": None}, "rope_theta"),
        ("olmo3", {"rope_theta": 10000.0}, "rope_theta"),
        ("qwen2", {"rope_parameters": 10000.0}, "rope_parameters"),
        ("gemma3", {"rope_parameters": {"rope_theta": 10000.0}}, "rope_parameters.rope_theta"),
        ("qwen2", {"rope_parameters": {FULL: {}}}, "rope_parameters.full_attention"),
        ("qwen2", {"rope_scaling": {"rope_type": "default", "type": "linear"}}, "rope_scaling.type"),
        ("qwen2", {"rope_scaling": {"mrope_section": [8, 4, 4]}}, "rope_scaling.mrope_section"),
        ("qwen2", {"rope_parameters": {"rope_type": "longrope", "rope_theta": 10000.0}}, "rope_parameters.rope_type"),
        ("qwen2", {"rope_parameters": {"rope_type": "yarn", "rope_theta": 10000.0}}, "rope_parameters.factor"),
        ("qwen2", {"rope_parameters": YARN | {"rope_theta": 1.0}}, "rope_parameters.rope_theta"),
        ("qwen2", {"rope_parameters": LLAMA3 | {"low_freq_factor": 4.0}}, "rope_parameters.low_freq_factor"),
        ("qwen2", {"rope_parameters": HALF_ROTATED}, "rope_parameters.partial_rotary_factor"),
    ],
)
def test_unsupported_config_raises_one_line_with_its_key(family, changes, key):
    with pytest.raises(CheckpointError) as refused:
        spec_of(tiny_config(family, **changes), "here/config.json")

    [line] = str(refused.value).splitlines()
    assert line.startswith(f"here/config.json: {key} ")


@pytest.mark.parametrize("rope_type", ["dynamic", "longrope", "proportional", "mrope"])
@pytest.mark.parametrize("key", ["rope_type", "type"])
def test_unsupported_rope_type_raises_with_its_key(key, rope_type):
    with pytest.raises(CheckpointError, match=f"^tiny llama: rope_scaling.{key} is '{rope_type}'; "):
        tiny_spec("llama", rope_scaling={key: rope_type, "factor": 2.0})


def test_unknown_family_raises_with_the_known_ones():
    with pytest.raises(CheckpointError, match="'gemma4' is not known; want one of gemma2, "):
        tiny_spec("gemma4")
