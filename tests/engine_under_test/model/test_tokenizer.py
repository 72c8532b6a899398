"""Text is encoded and decoded, and a stream sends whole characters."""

import pytest

from engine_under_test.errors import CheckpointError
from engine_under_test.model.tokenizer import TextStream, Tokenizer
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


def test_truncated_tokenizer_raises_one_line(tmp_path):
    write_tokenizer(tmp_path)
    path = tmp_path / "tokenizer.json"
    path.write_text(path.read_text()[:100])

    with pytest.raises(CheckpointError, match=r"tokenizer\.json: not a tokenizer: ") as raised:
        Tokenizer(tmp_path)

    assert "\n" not in str(raised.value)
