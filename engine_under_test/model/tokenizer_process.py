"""The process that runs the tokenizer of a checkpoint: a bad one can crash the library, or fill the memory.

Its arguments are the file, and its limits: bytes of address space, CPU seconds for one answer, and ids in one answer.
It reads a JSON line per question, {"encode": text} or {"decode": ids}, and writes a line per answer, {"answer": …} or
{"error": text}.  The first answer is about the file.
"""

import json
import resource
import sys
import time
from collections.abc import Callable
from typing import Any

import tokenizers


def main() -> None:
    path, (memory_bytes, cpu_seconds, most_ids) = sys.argv[1], map(int, sys.argv[2:])
    limit(resource.RLIMIT_AS, memory_bytes)
    limit(resource.RLIMIT_CORE, 0)
    tokenizer: Any = None

    def load() -> None:
        nonlocal tokenizer
        tokenizer = tokenizers.Tokenizer.from_file(path)
        tokenizer.no_padding()  # settings of the file for batches, which could make a prompt longer or shorter
        tokenizer.no_truncation()

    def encode(text: str) -> list[int]:
        ids: list[int] = tokenizer.encode(text).ids
        if len(ids) > most_ids:
            raise ValueError(f"{len(ids)} tokens for a text of {len(text)} characters")
        return ids

    def answer(question: Callable[..., object], *arguments: object) -> None:
        limit(resource.RLIMIT_CPU, int(time.process_time()) + cpu_seconds)
        reply: dict[str, object]
        try:
            reply = {"answer": question(*arguments)}
        except Exception as error:  # the library has no common error; the answer has its text
            reply = {"error": f"{type(error).__name__}: {error}"}
        sys.stdout.write(json.dumps(reply) + "\n")
        sys.stdout.flush()

    answer(load)
    for line in sys.stdin:
        [(name, argument)] = json.loads(line).items()
        answer(encode if name == "encode" else tokenizer.decode, argument)


def limit(kind: int, most: int) -> None:
    """Limit a resource of this process, at most to the limit that the process already has."""
    hard = resource.getrlimit(kind)[1]
    resource.setrlimit(kind, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))


if __name__ == "__main__":
    main()
