"""Checkpoint directories: what is read from them, and what is said of one that cannot be."""

import json
import math
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from engine_under_test.errors import CheckpointError, EngineError
from engine_under_test.model.checkpoint import load_decoder, read_spec
from engine_under_test.model.decoder import dense_logits
from engine_under_test.model.families import FULL, SLIDING, spec_of
from engine_under_test.model.spec import LayerSpec, RopeSpec
from engine_under_test.model.tiny import TINY, tiny_config, tiny_spec
from tests.engine_under_test.model.checkpoints import CPU, some_tokens, write_checkpoint

FLOAT = torch.float32
Q_WEIGHT = "model.layers.1.self_attn.q_proj.weight"


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    directory = tmp_path_factory.mktemp("gemma3")
    write_checkpoint(directory, "gemma3")
    return directory


@pytest.fixture(scope="module")
def written_in_shards(tmp_path_factory):
    directory = tmp_path_factory.mktemp("shards")
    write_checkpoint(tmp_path_factory.mktemp("whole"), "gemma3").save_pretrained(directory, max_shard_size="60KB")
    return directory


@pytest.fixture
def checkpoint(written, tmp_path):
    """One that a test may break."""
    return shutil.copytree(written, tmp_path / "checkpoint")


@pytest.fixture
def shards(written_in_shards, tmp_path):
    return shutil.copytree(written_in_shards, tmp_path / "shards")


def load(directory):
    return load_decoder(directory, dtype=FLOAT, device=CPU)


def said_of(directory):
    """What is said when a checkpoint cannot be loaded: one line."""
    with pytest.raises(CheckpointError) as refused:
        load(directory)
    [line] = str(refused.value).splitlines()
    return line


@pytest.mark.parametrize("family", TINY)
def test_the_spec_of_a_written_checkpoint_is_that_of_its_config(tmp_path, family):
    """What transformers writes says what went in."""
    write_checkpoint(tmp_path, family)

    assert read_spec(tmp_path) == tiny_spec(family)


@torch.inference_mode()
def test_a_checkpoint_in_shards_is_the_same_checkpoint(written, shards):
    assert len(list(shards.glob("*.safetensors"))) > 2

    whole, in_shards = (dense_logits(load(directory), some_tokens(20)) for directory in (written, shards))

    assert torch.equal(whole, in_shards)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_weights_are_converted_to_the_dtype_that_was_asked_for(written, dtype):
    decoder = load_decoder(written, dtype=dtype, device=CPU)

    assert (decoder.dtype, decoder.device) == (dtype, CPU)
    assert decoder.logits(torch.zeros(1, 64, dtype=dtype)).dtype is dtype


def test_copies_and_tables_in_the_file_are_passed_over(checkpoint):
    """A head that is tied anyway, and rotations that are computed anyway."""
    embedding = load_file(checkpoint / "model.safetensors")["model.embed_tokens.weight"]
    rewrite(checkpoint, {"lm_head.weight": embedding.clone(), "model.rotary_emb.inv_freq": torch.ones(8)})

    load(checkpoint)


def test_tied_head_that_differs_from_the_embedding_is_refused(checkpoint):
    """transformers computes logits with such a head, whatever config.json says."""
    rewrite(checkpoint, {"lm_head.weight": torch.ones(128, 64)})

    assert said_of(checkpoint).startswith(f"{checkpoint}/config.json: tie_word_embeddings is true, and lm_head.weight")


# --- configurations of other times


def old(family, *, drop=(), **written):
    """A config.json of before transformers 5: no layer types, no rope parameters."""
    values = tiny_config(family)
    for key in ("layer_types", "rope_parameters", *drop):
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
        ("qwen2", [False, False, True, True, True, True]),
        ("qwen3", [False, False, True, True, True, True]),
    ],
)
def test_where_layers_are_not_listed_the_family_has_a_pattern(family, slides):
    spec = old(family, num_hidden_layers=6, rope_theta=1e4, rope_local_base_freq=1e4, max_window_layers=2)

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
        ("gemma3", {"architectures": ["LlamaForCausalLM"]}, "architectures is ['LlamaForCausalLM']; want one of"),
        ("gemma3", {"architectures": None}, "architectures is missing"),
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
        ("mistral", {"layer_types": [SLIDING, FULL, SLIDING]}, "layer_types is not understood for this architecture"),
        ("qwen2", {"use_sliding_window": False}, "use_sliding_window is not true, though layer_types has layers that"),
        ("gemma3", {"attn_logit_softcapping": 50.0}, "attn_logit_softcapping is not understood for this architecture"),
        ("gemma2", {"attn_logit_softcapping": None}, "attn_logit_softcapping is missing; write null"),
        ("qwen2", {"quantization_config": {"bits": 4}}, "quantization_config is there; want weights that are not"),
        ("gemma3", {"use_bidirectional_attention": True}, "use_bidirectional_attention is true; want a causal model"),
        ("gemma3", {"attention_bias": "yes"}, "attention_bias is 'yes'; want true or false"),
        ("gemma3", {"eos_token_id": "</s>"}, "eos_token_id is '</s>'; want a token id"),
        ("gpt-oss", {"num_experts_per_tok": 5}, "num_experts_per_tok is 5; want at most num_local_experts, 4"),
        ("qwen2", {"rope_parameters": None}, "rope_theta is missing"),
        ("qwen2", {"rope_parameters": 1e4}, "rope_parameters is 10000.0; want an object"),
        ("gemma3", {"rope_parameters": {"rope_theta": 1e4}}, "rope_parameters.sliding_attention is missing"),
        ("qwen2", {"rope_parameters": {"rope_type": "default"}}, "rope_parameters.rope_theta is missing"),
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
            "rope_parameters.partial_rotary_factor is not understood",
        ),
    ],
)
def test_a_config_that_cannot_be_run_is_refused_by_its_key(family, changes, said):
    """In one line that names the file, the key and what would be right."""
    with pytest.raises(CheckpointError) as refused:
        spec_of(tiny_config(family, **changes), "here/config.json")

    [line] = str(refused.value).splitlines()
    assert line.startswith(f"here/config.json: {said}")


def test_a_family_that_is_not_known_is_refused_with_those_that_are():
    with pytest.raises(CheckpointError, match="'gemma4' is not known; want one of gemma2, gemma3, gpt-oss"):
        tiny_spec("gemma4")


# --- files that cannot be read


def rewrite(directory, changes, *, without=()):
    path = directory / "model.safetensors"
    tensors = {name: tensor for name, tensor in load_file(path).items() if name not in without}
    save_file(tensors | changes, path)


def test_a_checkpoint_error_is_an_operating_error(tmp_path):
    with pytest.raises(EngineError):
        read_spec(tmp_path)


def test_a_directory_that_is_not_there_is_named(tmp_path):
    assert said_of(tmp_path / "gone").startswith(f"{tmp_path}/gone: no such directory; want one with config.json")


def test_a_directory_without_a_config_is_named(checkpoint):
    (checkpoint / "config.json").unlink()

    assert said_of(checkpoint).startswith(f"{checkpoint}/config.json: no such file")


@pytest.mark.parametrize("text", [b'{"hidden_size": 6', b"\xff\xfe", b""])
def test_a_torn_config_is_named(checkpoint, text):
    (checkpoint / "config.json").write_bytes(text)

    assert said_of(checkpoint).startswith(f"{checkpoint}/config.json: not JSON: ")


def test_a_config_that_is_no_object_is_named(checkpoint):
    (checkpoint / "config.json").write_text("[]")

    assert said_of(checkpoint) == f"{checkpoint}/config.json: holds a list; want a JSON object"


def test_a_directory_without_weights_is_named(checkpoint):
    (checkpoint / "model.safetensors").unlink()

    assert said_of(checkpoint).startswith(f"{checkpoint}/model.safetensors: no such file")


def test_a_missing_tensor_is_named(checkpoint):
    rewrite(checkpoint, {}, without=[Q_WEIGHT])

    assert said_of(checkpoint).startswith(f"{checkpoint}/model.safetensors: {Q_WEIGHT} is missing, one of 1 tensors")


def test_a_tensor_of_another_shape_is_named(checkpoint):
    """With the file that says otherwise."""
    rewrite(checkpoint, {Q_WEIGHT: torch.zeros(64, 65)})

    said = f"{checkpoint}/model.safetensors: {Q_WEIGHT} has shape (64, 65); want (64, 64), by {checkpoint}/config.json"
    assert said_of(checkpoint) == said


@pytest.mark.parametrize("name", ["model.layers.3.mlp.up_proj.weight", "model.layers.0.self_attn.q_proj.bias"])
def test_a_tensor_that_the_model_has_no_place_for_is_named(checkpoint, name):
    """Left out, it would change what the model says."""
    rewrite(checkpoint, {name: torch.zeros(64)})

    assert said_of(checkpoint).startswith(f"{checkpoint}/model.safetensors: {name} is not expected of Gemma3For")


def test_quantized_weights_are_named(checkpoint):
    rewrite(checkpoint, {Q_WEIGHT: torch.zeros(64, 64, dtype=torch.int8)})

    assert said_of(checkpoint).startswith(f"{checkpoint}/model.safetensors: {Q_WEIGHT} is torch.int8; want weights")


@pytest.mark.parametrize("kept", [0, 4, 100, -1])
def test_a_truncated_file_is_named(checkpoint, kept):
    """Whether the header or the tensors end too early."""
    path = checkpoint / "model.safetensors"
    path.write_bytes(path.read_bytes()[:kept])

    assert said_of(checkpoint).startswith(f"{path}: truncated or no safetensors file: ")


def test_a_missing_shard_is_named(shards):
    lost = sorted(shards.glob("*.safetensors"))[1]
    lost.unlink()

    assert said_of(shards).startswith(f"{lost}: no such file")


def test_a_tensor_that_is_not_in_the_shard_that_the_index_names_is_named(shards):
    path = shards / "model.safetensors.index.json"
    index = json.loads(path.read_text())
    shard = index["weight_map"]["model.norm.weight"]
    index["weight_map"]["lm_head.weight"] = shard
    path.write_text(json.dumps(index))

    assert said_of(shards).startswith(f"{shards / shard}: lm_head.weight is missing, though model.safetensors.index")


def test_a_tensor_that_no_shard_has_is_named_by_the_index(shards):
    path = shards / "model.safetensors.index.json"
    index = json.loads(path.read_text())
    del index["weight_map"]["model.norm.weight"]
    path.write_text(json.dumps(index))

    assert said_of(shards).startswith(f"{path}: model.norm.weight is missing, one of 1 tensors")


@pytest.mark.parametrize("text", ["{}", '{"weight_map": [1]}', '{"weight_map": {"a": 1}}'])
def test_an_index_without_a_map_is_named(shards, text):
    (shards / "model.safetensors.index.json").write_text(text)

    assert said_of(shards).startswith(f"{shards}/model.safetensors.index.json: weight_map is missing or torn")


def test_a_dtype_that_is_not_supported_is_named(written):
    with pytest.raises(CheckpointError, match=r"dtype torch.float16 is not supported; want one of torch.float32"):
        load_decoder(written, dtype=torch.float16, device=CPU)
