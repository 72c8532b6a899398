"""Converts text to token ids and back, with the tokenizer of the checkpoint."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from weakref import finalize

from swarden.engine_under_test import limits
from swarden.engine_under_test.errors import CheckpointError
from swarden.engine_under_test.model.files import path_in

FILE = "tokenizer.json"
PROGRAM = Path(__file__).with_name("tokenizer_process.py")
UNFINISHED = "\ufffd"  # stands for a character whose bytes are incomplete


class Tokenizer:
    """The tokenizer of one checkpoint directory, in a process of its own, which ends with this object.

    Raises CheckpointError if it cannot be read, and at a text or an id with which it fails, crashes or needs too much.
    """

    def __init__(self, directory: Path) -> None:
        self._path = path_in(directory, FILE)
        if (size := self._path.stat().st_size) > limits.MAX_TOKENIZER_BYTES:
            raise CheckpointError(f"{self._path}: has {size} bytes; want at most {limits.MAX_TOKENIZER_BYTES}")
        memory_bytes = limits.TOKENIZER_MEMORY_BYTES + limits.TOKENIZER_MEMORY_PER_BYTE * size
        bounds = map(str, (memory_bytes, limits.TOKENIZER_CPU_SECONDS, limits.MAX_CONTEXT_LEN))
        self._process = subprocess.Popen(
            [sys.executable, "-P", str(PROGRAM), str(self._path), *bounds],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # where the library writes how it crashed, in many lines
            env=os.environ | {"TOKENIZERS_PARALLELISM": "false"},
            text=True,
            encoding="utf-8",
        )
        finalize(self, _end, self._process)
        self._answer("not a tokenizer")

    def encode(self, text: str) -> list[int]:
        """The token ids of a text, with the special tokens that the checkpoint's tokenizer adds."""
        self._ask({"encode": text})
        return list(self._answer("cannot encode the text"))

    def decode(self, token_ids: Sequence[int]) -> str:
        self._ask({"decode": list(token_ids)})
        return str(self._answer("cannot decode the tokens"))

    def _ask(self, question: dict[str, Any]) -> None:
        assert self._process.stdin is not None, "it is a pipe"
        with suppress(BrokenPipeError):  # then there is no answer either
            self._process.stdin.write(json.dumps(question) + "\n")
            self._process.stdin.flush()

    def _answer(self, failure: str) -> Any:
        """The next answer; raises CheckpointError with the text `failure` if it is an error."""
        assert self._process.stdout is not None, "it is a pipe"
        line = self._process.stdout.readline()
        reply = json.loads(line) if line.endswith("\n") else {"error": f"it crashed ({self._death()})"}
        if "error" in reply:
            what = " ".join(str(reply["error"]).split())
            raise CheckpointError(f"{self._path}: {failure}: {what}; download it again")
        return reply["answer"]

    def _death(self) -> str:
        code = self._process.wait()
        return signal.Signals(-code).name if code < 0 else f"exit code {code}"


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


def _end(process: "subprocess.Popen[str]") -> None:
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with suppress(BrokenPipeError):  # of a question that the process did not read
                pipe.close()
