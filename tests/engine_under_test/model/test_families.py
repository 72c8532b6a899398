"""What a config.json says to each family, and what is said of one that cannot be run."""

import math

import pytest
from transformers import AutoConfig

from engine_under_test.errors import CheckpointError
from engine_under_test.model.config_file import FULL, SLIDING
from engine_under_test.model.families import spec_of
from engine_under_test.model.spec import LayerSpec, RopeSpec
from engine_under_test.model.tiny import tiny_config, tiny_spec
from tests.engine_under_test.model.published import PUBLISHED


@pytest.mark.parametrize("values", [pytest.param(values, id=name) for name, values in PUBLISHED.items()])
def test_published_config_is_the_one_that_transformers_writes_of_it(values):
    """Beside its own keys it has those of every configuration class then, and no old spelling."""
    written_again = AutoConfig.for_model(**values).to_dict()

    assert "rope_parameters" in written_again
    assert spec_of(values) == spec_of(written_again)


# --- configurations of other times


def old(family, **written):
    """A config.json of before transformers 5: no layer types, no rope parameters."""
    values = tiny_config(family)
    for key in ("layer_types", "rope_parameters"):
        values.pop(key, None)
    return spec_of(values | written)


def kinds(spec):
    return [(layer.is_sliding, layer.rope) for layer in spec.layers]


def test_an_old_gemma3_has_two_thetas_and_a_pattern():
    """The scaling is that of the full layers alone."""
    spec = old(
        "gemma3",
        rope_theta=1e6,
        rope_local_base_freq=1e4,
        sliding_window_pattern=2,
        rope_scaling={"rope_type": "linear", "factor": 8.0},
    )

    local, whole = (True, RopeSpec(1e4)), (False, RopeSpec(1e6, "linear", factor=8.0))
    assert kinds(spec) == [local, whole, local]


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
def test_where_layers_are_not_listed_the_family_has_a_pattern(family, slides):
    spec = old(family, num_hidden_layers=6)

    assert [layer.is_sliding for layer in spec.layers] == slides


def test_an_old_gpt_oss_has_its_yarn_in_rope_scaling():
    """The attention factor of yarn is 0.1 ln(factor) + 1 where it is not written."""
    scaling = {"type": "yarn", "factor": 32.0, "truncate": False, "original_max_position_embeddings": 4096}

    spec = old("gpt-oss", rope_theta=150_000, rope_scaling=scaling)

    rope = RopeSpec(150_000.0, "yarn", 32.0, 0.1 * math.log(32) + 1, 4096, truncate=False)
    assert kinds(spec) == [(True, rope), (False, rope), (True, rope)]


def test_an_old_olmo3_stretches_its_full_layers_alone():
    """By the attention factor that is written, from the longest context where no other is named."""
    scaling = {"rope_type": "yarn", "factor": 8.0, "attention_factor": 1.25}

    spec = old("olmo3", layer_types=[SLIDING, FULL, SLIDING], rope_theta=5e5, rope_scaling=scaling)

    local, whole = (True, RopeSpec(5e5)), (False, RopeSpec(5e5, "yarn", 8.0, 1.25, 8192))
    assert kinds(spec) == [local, whole, local]


@pytest.mark.parametrize("family", ["qwen2", "qwen3"])
def test_a_qwen_that_does_not_slide_has_no_window(family):
    """Whatever window and first windowed layer it names."""
    spec = old(family, rope_theta=1e4, use_sliding_window=False, max_window_layers=0)

    assert (spec.sliding_window, kinds(spec)) == (None, [(False, RopeSpec(1e4))] * 3)


def test_full_layers_of_cohere2_do_not_rotate():
    spec = tiny_spec("cohere2")

    assert spec.layers[1] == LayerSpec(1, False, None)
    assert spec.ropes == (RopeSpec(10_000.0),)


def test_several_end_tokens_may_be_listed():
    assert tiny_spec("gemma3", eos_token_id=[1, 106]).eos_token_ids == (1, 106)


# --- configurations that cannot be run


@pytest.mark.parametrize(
    ("family", "changes", "said"),
    [
        ("gemma3", {"architectures": ["GPT2LMHeadModel"]}, "architectures is ['GPT2LMHeadModel']; want one of"),
        ("gemma3", {"architectures": None}, "architectures is missing"),
        ("gemma3", {"model_type": "gemma3"}, "model_type is 'gemma3'; want gemma3_text, the type of Gemma3ForCausalLM"),
        ("gemma3", {"text_config": {}}, "text_config is not understood for Gemma3ForCausalLM; remove it if the model"),
        ("gemma3", {"hidden_size": None}, "hidden_size is missing"),
        ("gemma3", {"hidden_size": "64"}, "hidden_size is '64'; want an integer of at least 1"),
        ("gemma3", {"num_hidden_layers": 0}, "num_hidden_layers is 0; want an integer of at least 1"),
        ("gemma3", {"rms_norm_eps": -1.0}, "rms_norm_eps is -1.0; want a positive number"),
        ("gemma3", {"num_key_value_heads": 3}, "num_key_value_heads is 3; want a divisor of 4 heads"),
        ("gemma3", {"head_dim": 15}, "head_dim is 15; want an even number"),
        ("gemma3", {"hidden_activation": "relu"}, "hidden_activation is 'relu'; what can be run is silu"),
        ("gemma3", {"sliding_window": None}, "sliding_window is missing"),
        ("gemma3", {"layer_types": [SLIDING, FULL]}, "layer_types is ['sliding_attention', 'full_attention']; want 3"),
        ("gemma3", {"layer_types": ["chunked_attention"] * 3}, "layer_types is ['chunked_attention'"),
        ("qwen2", {"use_sliding_window": False}, "use_sliding_window is not true, though layer_types has layers that"),
        ("gemma3", {"attn_logit_softcapping": 50.0}, "attn_logit_softcapping is not understood for Gemma3ForCausalLM"),
        ("gemma2", {"sliding_window_pattern": 3}, "sliding_window_pattern is not understood for Gemma2ForCausalLM"),
        ("llama", {"sliding_window": 8}, "sliding_window is not understood for LlamaForCausalLM"),
        ("llama", {"mlp_bias": True}, "mlp_bias is True, which is not understood for LlamaForCausalLM; want False"),
        ("qwen2", {"quantization_config": {"bits": 4}}, "quantization_config is there; want weights that are not"),
        ("gemma3", {"use_bidirectional_attention": True}, "use_bidirectional_attention is True, which is not"),
        ("gemma3", {"attention_bias": "yes"}, "attention_bias is 'yes'; want true or false"),
        ("gemma3", {"eos_token_id": "</s>"}, "eos_token_id is '</s>'; want a token id"),
        ("gpt-oss", {"num_experts_per_tok": 5}, "num_experts_per_tok is 5; want at most num_local_experts, 4"),
        ("qwen2", {"rope_parameters": {}, "rope_theta": None}, "rope_theta is missing"),
        (
            "olmo3",
            {"rope_theta": 1e4},
            "rope_theta is 10000.0, which is not understood for Olmo3ForCausalLM; want 500000",
        ),
        ("qwen2", {"rope_parameters": 1e4}, "rope_parameters is 10000.0; want an object"),
        ("gemma3", {"rope_parameters": {"rope_theta": 1e4}}, "rope_parameters.rope_theta is not understood for layers"),
        ("qwen2", {"rope_parameters": {FULL: {}}}, "rope_parameters.full_attention is not understood for a rotary"),
        (
            "qwen2",
            {"rope_scaling": {"rope_type": "default", "type": "linear"}},
            "rope_scaling.type is 'linear', and rope_type is 'default'; want one of them",
        ),
        ("qwen2", {"rope_scaling": {"mrope_section": [8, 4, 4]}}, "rope_scaling.mrope_section is not understood"),
        (
            "qwen2",
            {"rope_parameters": {"rope_type": "longrope", "rope_theta": 1e4}},
            "rope_parameters.rope_type is 'longrope'; what can be run is default, linear, yarn, llama3",
        ),
        (
            "qwen2",
            {"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4}},
            "rope_parameters.factor is missing",
        ),
        (
            "qwen2",
            {"rope_parameters": {"rope_type": "yarn", "rope_theta": 1.0, "factor": 2.0}},
            "rope_parameters.rope_theta is 1.0; want more than 1",
        ),
        (
            "qwen2",
            {
                "rope_parameters": {
                    "rope_type": "llama3",
                    "rope_theta": 1e4,
                    "factor": 2.0,
                    "low_freq_factor": 4.0,
                    "high_freq_factor": 4.0,
                }
            },
            "rope_parameters.low_freq_factor is 4.0; want less than high_freq_factor, 4.0",
        ),
        (
            "qwen2",
            {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5}},
            "rope_parameters.partial_rotary_factor is 0.5, which is not understood for a rotary embedding; want 1.0",
        ),
    ],
)
def test_a_config_that_cannot_be_run_is_refused_by_its_key(family, changes, said):
    """In one line that names the file, the key and what would be right."""
    with pytest.raises(CheckpointError) as refused:
        spec_of(tiny_config(family, **changes), "here/config.json")

    [line] = str(refused.value).splitlines()
    assert line.startswith(f"here/config.json: {said}")


@pytest.mark.parametrize("rope_type", ["dynamic", "longrope", "proportional", "mrope"])
@pytest.mark.parametrize("key", ["rope_type", "type"])
def test_rope_type_that_cannot_be_run_is_refused_in_either_spelling(key, rope_type):
    with pytest.raises(CheckpointError, match=f"^tiny llama: rope_scaling.{key} is '{rope_type}'; what can be run is"):
        tiny_spec("llama", rope_scaling={key: rope_type, "factor": 2.0})


def test_a_family_that_is_not_known_is_refused_with_those_that_are():
    with pytest.raises(CheckpointError, match="'gemma4' is not known; want one of gemma2, gemma3, gpt-oss"):
        tiny_spec("gemma4")
