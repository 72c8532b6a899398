"""Checkpoint directories are read, and an unreadable one raises an error that names the file."""

import json
import shutil
from collections.abc import Callable
from os import mkfifo
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from swarden.engine_under_test.errors import CheckpointError, EngineError
from swarden.engine_under_test.model.checkpoint import load_decoder, model_name, read_spec
from swarden.engine_under_test.model.tiny import TINY, tiny_spec
from tests.engine_under_test.model.checkpoints import CPU, some_tokens, write_checkpoint
from tests.engine_under_test.model.dense import dense_logits

FLOAT = torch.float32
CONFIG, WEIGHTS = "config.json", "model.safetensors"
Q_WEIGHT = "model.layers.1.self_attn.q_proj.weight"
BEYOND, BIAS = "model.layers.3.mlp.up_proj.weight", "model.layers.0.self_attn.q_proj.bias"


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
    """A copy that the test may break."""
    return shutil.copytree(written, tmp_path / "checkpoint")


@pytest.fixture
def shards(written_in_shards, tmp_path):
    return shutil.copytree(written_in_shards, tmp_path / "shards")


def load(directory):
    return load_decoder(directory, dtype=FLOAT, device=CPU)


def error_of(directory):
    """The one line of the error when a checkpoint cannot be loaded."""
    with pytest.raises(CheckpointError) as refused:
        load(directory)
    [line] = str(refused.value).splitlines()
    return line


@pytest.mark.parametrize("family", TINY)
def test_spec_of_a_written_checkpoint_equals_that_of_its_config(tmp_path, family):
    write_checkpoint(tmp_path, family)

    assert read_spec(tmp_path) == tiny_spec(family)


@torch.inference_mode()
def test_sharded_checkpoint_gives_the_same_logits(written, shards):
    assert len(list(shards.glob("*.safetensors"))) > 2

    whole, in_shards = (dense_logits(load(directory), some_tokens(20)) for directory in (written, shards))

    assert torch.equal(whole, in_shards)


def test_name_of_a_model_depends_on_its_weights_and_architecture_and_not_on_its_files(written, shards, checkpoint):
    file, config = checkpoint / "model.safetensors", checkpoint / "config.json"
    tensors, values = load_file(file), json.loads(config.read_text())
    tensors[Q_WEIGHT][0, 0] += 1
    save_file(tensors, file)
    changed_weight = model_name(checkpoint)
    shutil.copy(written / "model.safetensors", file)
    config.write_text(json.dumps({**values, "rms_norm_eps": 1e-3}), encoding="utf-8")
    changed_norm = model_name(checkpoint)
    config.write_text(json.dumps({**values, "eos_token_id": 9}, indent=8), encoding="utf-8")

    assert model_name(shards) == model_name(checkpoint) == model_name(written)
    assert len({changed_weight, changed_norm, model_name(written)}) == 3


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_weights_are_converted_to_the_requested_dtype(written, dtype):
    decoder = load_decoder(written, dtype=dtype, device=CPU)

    assert (decoder.dtype, decoder.device) == (dtype, CPU)
    assert decoder.logits(torch.zeros(1, 64, dtype=dtype)).dtype is dtype


def test_tied_head_and_rotary_tables_in_the_file_are_ignored(checkpoint):
    embedding = load_file(checkpoint / "model.safetensors")["model.embed_tokens.weight"]
    rewrite(checkpoint, {"lm_head.weight": embedding.clone(), "model.rotary_emb.inv_freq": torch.ones(8)})

    load(checkpoint)


def test_tied_head_that_differs_from_the_embedding_raises(checkpoint):
    """transformers would compute logits with this head."""
    rewrite(checkpoint, {"lm_head.weight": torch.ones(128, 64)})

    assert error_of(checkpoint).startswith(f"{checkpoint}/config.json: tie_word_embeddings is true, ")


# --- unreadable files


def rewrite(directory, changes, *, without=()):
    path = directory / "model.safetensors"
    tensors = {name: tensor for name, tensor in load_file(path).items() if name not in without}
    save_file(tensors | changes, path)


def test_checkpoint_error_is_an_engine_error(tmp_path):
    with pytest.raises(EngineError):
        read_spec(tmp_path)


def test_missing_directory_is_named(tmp_path):
    assert error_of(tmp_path / "gone").startswith(f"{tmp_path}/gone: no such directory")


def write(name: str, content: bytes) -> Callable[[Path], object]:
    return lambda directory: (directory / name).write_bytes(content)


def unlink(name: str) -> Callable[[Path], object]:
    return lambda directory: (directory / name).unlink()


def cut(length: int) -> Callable[[Path], object]:
    def damage(directory: Path) -> None:
        path = directory / WEIGHTS
        path.write_bytes(path.read_bytes()[:length])

    return damage


def tensors(changes, **options) -> Callable[[Path], object]:
    return lambda directory: rewrite(directory, changes, **options)


OTHER_SHAPE, OTHER_TYPE = torch.zeros(64, 65), torch.zeros(64, 64, dtype=torch.int8)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (unlink(CONFIG), f"{CONFIG}: no such file"),
        *((write(CONFIG, text), f"{CONFIG}: not JSON: ") for text in (b'{"hidden_size": 6', b"\xff\xfe", b"")),
        (write(CONFIG, b"[]"), f"{CONFIG}: holds a list; "),
        (unlink(WEIGHTS), f"{WEIGHTS}: no such file"),
        (tensors({}, without=[Q_WEIGHT]), f"{WEIGHTS}: {Q_WEIGHT} is missing, one of 1 tensors"),
        (tensors({Q_WEIGHT: OTHER_SHAPE}), f"{WEIGHTS}: {Q_WEIGHT} has shape (64, 65); want (64, 64)"),
        (tensors({BEYOND: torch.zeros(64)}), f"{WEIGHTS}: {BEYOND} is unexpected "),
        (tensors({BIAS: torch.zeros(64)}), f"{WEIGHTS}: {BIAS} is unexpected "),
        (tensors({Q_WEIGHT: OTHER_TYPE}), f"{WEIGHTS}: {Q_WEIGHT} is torch.int8; want weights"),
        *((cut(length), f"{WEIGHTS}: truncated or no safetensors file: ") for length in (0, 4, 100, -1)),
    ],
)
def test_file_that_cannot_be_read_is_named_with_the_reason(checkpoint, damage, message):
    damage(checkpoint)

    assert error_of(checkpoint).startswith(f"{checkpoint}/{message}")


def test_missing_shard_is_named(shards):
    lost = sorted(shards.glob("*.safetensors"))[1]
    lost.unlink()

    assert error_of(shards).startswith(f"{lost}: no such file")


def test_tensor_that_its_shard_lacks_is_named(shards):
    path = shards / "model.safetensors.index.json"
    index = json.loads(path.read_text())
    shard = index["weight_map"]["model.norm.weight"]
    index["weight_map"]["lm_head.weight"] = shard
    path.write_text(json.dumps(index))

    assert error_of(shards).startswith(f"{shards / shard}: lm_head.weight is missing")


def test_tensor_that_the_index_lacks_is_named(shards):
    path = shards / "model.safetensors.index.json"
    index = json.loads(path.read_text())
    del index["weight_map"]["model.norm.weight"]
    path.write_text(json.dumps(index))

    assert error_of(shards).startswith(f"{path}: model.norm.weight is missing, one of 1 tensors")


@pytest.mark.parametrize("text", ["{}", '{"weight_map": [1]}', '{"weight_map": {"a": 1}}'])
def test_index_without_a_weight_map_is_named(shards, text):
    (shards / "model.safetensors.index.json").write_text(text)

    assert error_of(shards).startswith(f"{shards}/model.safetensors.index.json: weight_map is ")


# --- hostile files


def indexed(directory, weight_map):
    """Write an index with this weight map."""
    (directory / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))


@pytest.mark.parametrize(
    "name",
    [
        "../outside.safetensors",
        "/dev/zero",
        "/etc/passwd",
        "sub/x.safetensors",
        ".",
        "..",
        "",
        "a\0b",
        "\ud800",
        "x" * 300,
    ],
)
def test_shard_that_is_no_file_of_the_directory_is_refused(checkpoint, name):
    shutil.copy(checkpoint / "model.safetensors", checkpoint.parent / "outside.safetensors")
    indexed(checkpoint, {Q_WEIGHT: name})

    assert error_of(checkpoint).startswith(f"{checkpoint / name}: ")


@pytest.mark.parametrize("name", ["config.json", "generation_config.json", "model.safetensors"])
def test_link_to_the_outside_is_refused(checkpoint, name):
    outside = (checkpoint / name).rename(checkpoint.parent / "outside")
    (checkpoint / name).symlink_to(outside)

    assert error_of(checkpoint).startswith(f"{checkpoint / name}: is a link to {outside}, outside of {checkpoint}; ")


@pytest.mark.parametrize("name", ["generation_config.json", "model.safetensors.index.json"])
@pytest.mark.parametrize(
    "make", [Path.mkdir, mkfifo, lambda path: path.symlink_to("nowhere")], ids=["folder", "fifo", "broken-link"]
)
def test_optional_file_that_is_no_regular_file_is_refused(checkpoint, name, make):
    (checkpoint / name).unlink(missing_ok=True)
    make(checkpoint / name)

    assert error_of(checkpoint).startswith(f"{checkpoint / name}: is no regular file; ")


def test_snapshot_in_a_cache_of_hugging_face_has_links_to_its_blobs(checkpoint, tmp_path):
    """<repository>/snapshots/<revision>/FILE is a link to <repository>/blobs/HASH."""
    (tmp_path / "blobs").mkdir()
    (tmp_path / "snapshots").mkdir()
    for number, path in enumerate(sorted(checkpoint.iterdir())):
        path.symlink_to(path.rename(tmp_path / "blobs" / str(number)))

    load(checkpoint.rename(tmp_path / "snapshots" / "main"))


def test_index_of_many_shards_is_refused(checkpoint):
    indexed(checkpoint, {f"t{number}": f"s{number}" for number in range(4097)})

    assert error_of(checkpoint).endswith("index.json: weight_map names 4097 files; want at most 4096")


@pytest.mark.parametrize("depth", [17, 400, 960, 5000])
@pytest.mark.parametrize("name", ["config.json", "generation_config.json", "model.safetensors.index.json"])
def test_deep_json_is_refused(checkpoint, name, depth):
    (checkpoint / name).write_text('{"a":' + "[" * depth + "]" * depth + "}")

    assert error_of(checkpoint).startswith(f"{checkpoint / name}: nested more than 16 deep; ")


@pytest.mark.parametrize("name", ["config.json", "model.safetensors.index.json"])
def test_large_json_is_not_read(checkpoint, name):
    with (checkpoint / name).open("wb") as file:
        file.truncate((4 << 20) + 1)

    assert error_of(checkpoint).startswith(f"{checkpoint / name}: is larger than 4194304 bytes; ")


def test_large_header_of_a_file_of_tensors_is_not_read(checkpoint):
    path = checkpoint / "model.safetensors"
    path.write_bytes(((4 << 20) + 1).to_bytes(8, "little"))

    assert error_of(checkpoint) == f"{path}: has a header of 4194305 bytes; want at most 4194304"


@pytest.mark.parametrize(
    "changes",
    [
        {"architectures": [[]]},
        {"architectures": [{}]},
        {"num_attention_heads": 10**12},
        {"num_hidden_layers": 10**9, "layer_types": None},
        {"head_dim": 1026},
        {"hidden_size": 10**400},
        {"rms_norm_eps": 10**400},
        {"rms_norm_eps": 1e-300},
        {"sliding_window": 10**30},
        {"eos_token_id": 10**30},
        {"vocab_size": True},
    ],
)
def test_value_beyond_its_limit_is_one_short_line(checkpoint, changes):
    path = checkpoint / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    (checkpoint / "generation_config.json").unlink()

    line = error_of(checkpoint)

    assert line.startswith(f"{path}: ")
    assert len(line) < len(str(path)) + 250


def test_unsupported_dtype_is_named(written):
    with pytest.raises(CheckpointError, match=r"dtype torch.float16 is not supported"):
        load_decoder(written, dtype=torch.float16, device=CPU)
