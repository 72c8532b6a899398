"""The Mooncake format: a JSON object a line, with the prompt as the ids of its 512-token blocks.

`{"timestamp": ms, "input_length": tokens, "output_length": tokens, "hash_ids": [id, ...]}`; the
last id covers the rest of the prompt.  Source: github.com/kvcache-ai/Mooncake, FAST '25.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from random import Random
from reprlib import repr as shortened
from typing import Any, BinaryIO

import msgspec

from swarden.harness.core.errors import UsageError
from swarden.harness.core.files import opened
from swarden.harness.core.limits import MAX_LINE_BYTES, MAX_MS, MAX_TOKEN_ID, MAX_TOKENS, MAX_TRACE_BYTES
from swarden.harness.core.validation import NOT_DECODED

BLOCK_LEN = 512
KEYS = ("timestamp", "input_length", "output_length", "hash_ids")
TOKEN_BITS = 60  # enough that two blocks never share a token, and so never a page


class TraceError(UsageError):
    """A trace that cannot be served; names the file, and the line if one is wrong."""


@dataclass(frozen=True, slots=True)
class TraceRequest:
    """The arrival, prompt and output length of a request. The prompt is generated at each access.

    `block_ids` name whole blocks of `block_len` tokens.  If `tail_len` is above 0, the last id names a block of which
    the prompt has the first `tail_len` tokens.  Equal ids stand for equal tokens.
    """

    arrival_ms: int
    block_ids: tuple[int, ...]
    block_len: int
    tail_len: int
    max_new_tokens: int

    @property
    def num_full_blocks(self) -> int:
        return len(self.block_ids) - (self.tail_len > 0)

    @property
    def prompt_len(self) -> int:
        return self.num_full_blocks * self.block_len + self.tail_len

    @property
    def most_len(self) -> int:
        """Tokens of the prompt and of the longest output."""
        return self.prompt_len + self.max_new_tokens

    def prompt_token_ids(self) -> tuple[int, ...]:
        return tuple(self._tokens())

    def _tokens(self) -> Iterator[int]:
        for index, block_id in enumerate(self.block_ids):
            yield from block_token_ids(block_id, self.block_len if index < self.num_full_blocks else self.tail_len)


def block_token_ids(block_id: int, length: int) -> list[int]:
    """The first `length` tokens of a block. A shorter result is a prefix of a longer one."""
    generator = Random(block_id)
    return [generator.getrandbits(TOKEN_BITS) for _ in range(length)]


def read_mooncake(path: Path, *, limit: int | None, scale: int) -> list[TraceRequest]:
    """The first `limit` requests, each length divided by `scale`; raises TraceError at the first bad row."""
    if scale < 1 or BLOCK_LEN % scale:
        choices = ", ".join(str(choice) for choice in range(1, BLOCK_LEN + 1) if not BLOCK_LEN % choice)
        raise UsageError(f"scale {scale} does not divide the {BLOCK_LEN} tokens of a block; want one of {choices}")
    try:
        with BufferedReader(opened(path)) as file:
            requests = list(_requests(_lines(file, path, limit), path, scale))
    except OSError as error:
        raise TraceError(f"{path}: {error.strerror}; want a trace to read") from error
    if not requests:
        raise TraceError(f"{path}: no rows; want at least one request")
    return requests


def _lines(file: BinaryIO, path: Path, limit: int | None) -> Iterator[bytes]:
    """The first `limit` lines; raises TraceError if one or all of them are too long."""
    number = length = 0
    while (limit is None or number < limit) and (line := file.readline(MAX_LINE_BYTES + 1)):
        number, length = number + 1, length + len(line)
        if len(line) > MAX_LINE_BYTES:
            raise TraceError(f"{path}:{number}: a line of more than {MAX_LINE_BYTES} bytes; want a request per line")
        if length > MAX_TRACE_BYTES:
            raise TraceError(f"{path}:{number}: more than {MAX_TRACE_BYTES} bytes so far; give --limit {number - 1}")
        yield line


def _requests(lines: Iterator[bytes], path: Path, scale: int) -> Iterator[TraceRequest]:
    latest = 0
    for number, line in enumerate(lines, start=1):
        where = f"{path}:{number}"
        request = _scaled(_row(line, where), where, scale)
        if request.arrival_ms < latest:
            raise TraceError(
                f"{where}: timestamp {request.arrival_ms} follows {latest}; want one that does not go back"
            )
        latest = request.arrival_ms
        yield request


def _row(line: bytes, where: str) -> dict[str, Any]:
    try:
        row = msgspec.json.decode(line)
    except NOT_DECODED as error:
        raise TraceError(f"{where}: not JSON: {error}; want an object with {', '.join(KEYS)}") from error
    if not isinstance(row, dict):
        raise TraceError(f"{where}: {shortened(row)} is no object; want one with {', '.join(KEYS)}")
    for key in KEYS:
        if key not in row:
            raise TraceError(f"{where}: no {key}; want an object with {', '.join(KEYS)}")
    return row


def _scaled(row: dict[str, Any], where: str, scale: int) -> TraceRequest:
    arrival_ms = _whole(row["timestamp"], f"{where}: timestamp", least=0, most=MAX_MS)
    input_len = _whole(row["input_length"], f"{where}: input_length", least=1, most=scale * MAX_TOKENS)
    output_len = _whole(row["output_length"], f"{where}: output_length", least=0, most=scale * MAX_TOKENS)
    block_ids, wanted = row["hash_ids"], -(-input_len // BLOCK_LEN)
    if not isinstance(block_ids, list):
        raise TraceError(f"{where}: hash_ids {shortened(block_ids)} is no list; want {wanted} whole numbers")
    if len(block_ids) != wanted:
        want = f"want {wanted}, one per {BLOCK_LEN} tokens"
        raise TraceError(f"{where}: {len(block_ids)} hash_ids for input_length {input_len}; {want}")
    for index, block_id in enumerate(block_ids):
        _whole(block_id, f"{where}: hash_ids[{index}]", least=0, most=MAX_TOKEN_ID)
    tail_len = input_len % BLOCK_LEN
    tail_len = max(1, round(tail_len / scale)) if tail_len else 0
    return TraceRequest(arrival_ms, tuple(block_ids), BLOCK_LEN // scale, tail_len, max(1, round(output_len / scale)))


def _whole(value: object, where: str, *, least: int, most: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise TraceError(f"{where} is {shortened(value)}; want a whole number from {least} to {most}")
    return value
