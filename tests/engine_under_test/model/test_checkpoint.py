"""Checkpoint directories: what is read from them, and what is said of one that cannot be."""

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from engine_under_test.errors import CheckpointError, EngineError
from engine_under_test.model.checkpoint import load_decoder, read_spec
from engine_under_test.model.decoder import dense_logits
from engine_under_test.model.tiny import TINY, tiny_spec
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
