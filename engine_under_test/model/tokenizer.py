"""Converts text to token ids and back, with the tokenizer of the checkpoint."""

from collections.abc import Sequence
from pathlib import Path

import tokenizers

from engine_under_test.errors import CheckpointError

FILE = "tokenizer.json"
UNFINISHED = "\ufffd"  # stands for a character whose bytes are incomplete


class Tokenizer:
    """The tokenizer of one checkpoint directory; raises CheckpointError for one that cannot be read."""

    def __init__(self, directory: Path) -> None:
        path = directory / FILE
        if not path.is_file():
            raise CheckpointError(f"{path}: no such file; prompts that are text need the checkpoint's tokenizer")
        self._tokenizer = _read(path)

    def encode(self, text: str) -> list[int]:
        """The token ids of a text, with the special tokens that the checkpoint's tokenizer adds."""
        return list(self._tokenizer.encode(text).ids)

    def decode(self, token_ids: Sequence[int]) -> str:
        return str(self._tokenizer.decode(list(token_ids)))


class TextStream:
    """Streams the text of a growing list of token ids, in pieces of whole characters."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._token_ids: list[int] = []
        self._sent = ""

    def add(self, token_ids: Sequence[int]) -> str:
        """The next piece of text."""
        self._token_ids += token_ids
        text = self._tokenizer.decode(self._token_ids)
        return "" if text.endswith(UNFINISHED) else self._next_piece(text)

    def end(self) -> str:
        """The last piece, with any incomplete character."""
        return self._next_piece(self._tokenizer.decode(self._token_ids))

    def _next_piece(self, text: str) -> str:
        piece, self._sent = text[len(self._sent) :], text
        return piece


def _read(path: Path) -> tokenizers.Tokenizer:
    try:
        return tokenizers.Tokenizer.from_str(path.read_text(encoding="utf-8"))
    except Exception as error:
        raise CheckpointError(f"{path}: not a tokenizer: {error}; download it again") from error
