"""Text to token ids and back, by the checkpoint's own tokenizer."""

from collections.abc import Sequence
from pathlib import Path

import tokenizers

from engine_under_test.errors import CheckpointError

FILE = "tokenizer.json"
UNFINISHED = "\ufffd"  # what stands where the bytes of a character are not all there yet


class Tokenizer:
    """The tokenizer of one checkpoint directory; raises CheckpointError where it cannot be read."""

    def __init__(self, directory: Path) -> None:
        path = directory / FILE
        if not path.is_file():
            raise CheckpointError(f"{path}: no such file; prompts that are text need the checkpoint's tokenizer")
        self._tokenizer = _read(path)

    def encode(self, text: str) -> list[int]:
        """The token ids of a text, with what the checkpoint puts in front."""
        return list(self._tokenizer.encode(text).ids)

    def decode(self, token_ids: Sequence[int]) -> str:
        return str(self._tokenizer.decode(list(token_ids)))


class TextStream:
    """The text of a growing list of token ids, in pieces that never cut a character."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._token_ids: list[int] = []
        self._told = ""

    def add(self, token_ids: Sequence[int]) -> str:
        """What can be told now that could not be before."""
        self._token_ids += token_ids
        text = self._tokenizer.decode(self._token_ids)
        return "" if text.endswith(UNFINISHED) else self._tell(text)

    def end(self) -> str:
        """The rest, whole or not."""
        return self._tell(self._tokenizer.decode(self._token_ids))

    def _tell(self, text: str) -> str:
        piece, self._told = text[len(self._told) :], text
        return piece


def _read(path: Path) -> tokenizers.Tokenizer:
    try:
        return tokenizers.Tokenizer.from_str(path.read_text(encoding="utf-8"))
    except Exception as error:
        raise CheckpointError(f"{path}: not a tokenizer: {error}; copy it again from where it came") from error
