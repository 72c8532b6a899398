"""Text is encoded and decoded, and a stream sends whole characters."""

import json

import pytest

from swarden.engine_under_test.errors import CheckpointError
from swarden.engine_under_test.model.tokenizer import TextStream, Tokenizer
from tests.engine_under_test.model.tokenizers import write_tokenizer


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory) -> Tokenizer:
    directory = tmp_path_factory.mktemp("checkpoint")
    write_tokenizer(directory)
    return Tokenizer(directory)


def test_encoded_text_is_decoded_unchanged(tokenizer):
    assert tokenizer.decode(tokenizer.encode("two pools, é and 漢")) == "two pools, é and 漢"


def test_stream_sends_whole_characters(tokenizer):
    stream = TextStream(tokenizer)

    pieces = [stream.add([token]) for token in tokenizer.encode("aé漢b")]

    assert pieces == ["a", "", "é", "", "", "漢", "b"]
    assert stream.end() == ""


def test_stream_that_ends_inside_a_character_sends_the_replacement(tokenizer):
    stream = TextStream(tokenizer)
    cut = tokenizer.encode("a漢")[:-1]

    assert stream.add(cut) == ""
    assert stream.end() == "a�"


def test_directory_without_a_tokenizer_raises(tmp_path):
    with pytest.raises(CheckpointError, match=r"tokenizer\.json: no such file"):
        Tokenizer(tmp_path)


CRASHES = {"normalizer": {"type": "Precompiled", "precompiled_charsmap": "/////w=="}}
PANICS = {"normalizer": {"type": "Precompiled", "precompiled_charsmap": "AAAA"}}
GROWS = {"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 10}
BAD = {
    "crash": (CRASHES, "not a tokenizer: it crashed (SIGABRT)"),
    "panic": (PANICS, "not a tokenizer: it crashed (exit code 1)"),
    "no memory": (
        {"normalizer": {"type": "Sequence", "normalizers": [GROWS] * 10}},
        "cannot encode the text: it crashed (SIGABRT)",
    ),
    "no token for the unknown": (
        {"model": {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "?"}, "pre_tokenizer": None},
        "cannot encode the text: Exception: WordLevel error: Missing [UNK] token from the vocabulary",
    ),
}


@pytest.mark.parametrize(("changes", "message"), BAD.values(), ids=BAD)
def test_tokenizer_that_fails_or_crashes_is_one_line(tmp_path, changes, message, capfd):
    write_tokenizer(tmp_path)
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))

    with pytest.raises(CheckpointError) as raised:
        Tokenizer(tmp_path).encode("bab")

    assert str(raised.value) == f"{path}: {message}; download it again"
    assert capfd.readouterr() == ("", "")


def test_padding_of_the_file_is_not_applied(tmp_path):
    """Padding is for batches; here it would change the length of a prompt."""
    write_tokenizer(tmp_path)
    path = tmp_path / "tokenizer.json"
    padding = {"direction": "Right", "pad_to_multiple_of": None, "pad_id": 0, "pad_type_id": 0, "pad_token": "<pad>"}
    values = json.loads(path.read_text()) | {"padding": padding | {"strategy": {"Fixed": 10**10}}}
    path.write_text(json.dumps(values))

    assert len(Tokenizer(tmp_path).encode("ab")) == 2


def test_large_tokenizer_is_not_read(tmp_path):
    with (tmp_path / "tokenizer.json").open("wb") as file:
        file.truncate((64 << 20) + 1)

    with pytest.raises(CheckpointError, match=r"tokenizer\.json: has 67108865 bytes; want at most 67108864$"):
        Tokenizer(tmp_path)


def test_truncated_tokenizer_raises_one_line(tmp_path):
    write_tokenizer(tmp_path)
    path = tmp_path / "tokenizer.json"
    path.write_text(path.read_text()[:100])

    with pytest.raises(CheckpointError, match=r"tokenizer\.json: not a tokenizer: ") as raised:
        Tokenizer(tmp_path)

    assert "\n" not in str(raised.value)
