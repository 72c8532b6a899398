"""The Mooncake format: requests of valid rows, and errors of invalid rows."""

import json
from pathlib import Path

import pytest

from swarden.harness.core.errors import UsageError
from swarden.harness.traces.mooncake import TraceRequest, read_mooncake
from tests.harness.traces.some_traces import row, write_trace

GOOD = row([0, 1], tail=100)
KEYS = "timestamp, input_length, output_length, hash_ids"


def changed(**values: object) -> str:
    """A valid row with these values changed."""
    return json.dumps(GOOD | values)


def complaint(path: Path, *, limit: int | None = None, scale: int = 32) -> str:
    with pytest.raises(UsageError) as caught:
        read_mooncake(path, limit=limit, scale=scale)
    return str(caught.value)


def test_row_becomes_a_request_with_scaled_lengths(tmp_path):
    path = write_trace(tmp_path / "t.jsonl", [row([7, 8, 9], tail=100, timestamp=40, output_length=350)])

    [request] = read_mooncake(path, limit=None, scale=32)

    assert request == TraceRequest(arrival_ms=40, block_ids=(7, 8, 9), block_len=16, tail_len=3, max_new_tokens=11)
    assert (request.num_full_blocks, request.prompt_len, request.most_len) == (2, 35, 46)


@pytest.mark.parametrize(
    ("tail", "output_length", "lens"),
    [
        pytest.param(0, 0, (2, 32, 1), id="no-tail-no-output"),
        pytest.param(1, 1, (1, 17, 1), id="at-least-one"),
        pytest.param(511, 47, (1, 32, 1), id="tail-rounded-to-a-block-is-no-full-block"),
        pytest.param(511, 49, (1, 32, 2), id="rounded-to-the-nearest"),
    ],
)
def test_lengths_are_rounded_and_at_least_one(tmp_path, tail, output_length, lens):
    path = write_trace(tmp_path / "t.jsonl", [row([0, 1], tail=tail, output_length=output_length)])

    [request] = read_mooncake(path, limit=None, scale=32)

    assert (request.num_full_blocks, request.prompt_len, request.max_new_tokens) == lens


def test_blocks_with_equal_ids_have_equal_tokens_and_others_share_none(tmp_path):
    rows = [row([0, 1]), row([0, 2]), row([0, 1], tail=160)]
    path = write_trace(tmp_path / "t.jsonl", rows)

    first, second, third = (request.prompt_token_ids() for request in read_mooncake(path, limit=None, scale=32))

    assert first[:16] == second[:16]
    assert third == first[: 16 + 5]
    assert len({*first, *second}) == 3 * 16


def test_reading_ends_at_the_limit(tmp_path):
    path = tmp_path / "t.jsonl"
    path.write_text(f"{changed()}\n{changed()}\nnever read\n")

    assert len(read_mooncake(path, limit=2, scale=32)) == 2


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", f"not JSON: Input data was truncated; want an object with {KEYS}"),
        ("", f"not JSON: Input data was truncated; want an object with {KEYS}"),
        ("[" * 9000, None),
        ('{"timestamp": NaN}', None),
        ("[1]", f"[1] is no object; want one with {KEYS}"),
        ('{"timestamp": 0}', f"no input_length; want an object with {KEYS}"),
        (changed(timestamp=-1), "timestamp is -1; want a whole number from 0 to 9007199254740992"),
        (changed(timestamp=0.5), "timestamp is 0.5; want a whole number from 0 to 9007199254740992"),
        (changed(input_length="many"), "input_length is 'many'; want a whole number from 1 to 33554432"),
        (changed(input_length=True), "input_length is True; want a whole number from 1 to 33554432"),
        (changed(input_length=0), "input_length is 0; want a whole number from 1 to 33554432"),
        (changed(output_length=1 << 40), "output_length is 1099511627776; want a whole number from 0 to 33554432"),
        (changed(hash_ids=7), "hash_ids 7 is no list; want 2 whole numbers"),
        (changed(hash_ids=[0]), "1 hash_ids for input_length 612; want 2, one per 512 tokens"),
        (changed(hash_ids=[0, -4]), "hash_ids[1] is -4; want a whole number from 0 to 9223372036854775807"),
        (changed(timestamp=99), "timestamp 99 follows 100; want one that does not go back"),
    ],
)
def test_error_of_an_invalid_row_is_one_line_with_its_number(tmp_path, line, message):
    path = tmp_path / "t.jsonl"
    path.write_text(f"{changed(timestamp=100)}\n{line}\n")

    found = complaint(path)

    assert found.startswith(f"{path}:2: not JSON: ") if message is None else found == f"{path}:2: {message}"
    assert "\n" not in found


def test_invalid_utf8_is_refused(tmp_path):
    path = tmp_path / "t.jsonl"
    path.write_bytes(b'{"timestamp": "\xff"}\n')

    assert complaint(path).startswith(f"{path}:1: not JSON: ")


def test_error_names_a_missing_file(tmp_path):
    assert complaint(tmp_path / "t.jsonl") == f"{tmp_path}/t.jsonl: No such file or directory; want a trace to read"


def test_empty_trace_is_refused(tmp_path):
    path = write_trace(tmp_path / "t.jsonl", [])

    assert complaint(path) == f"{path}: no rows; want at least one request"


def test_scale_that_does_not_divide_a_block_is_refused(tmp_path):
    path = write_trace(tmp_path / "t.jsonl", [GOOD])

    assert complaint(path, scale=3) == (
        "scale 3 does not divide the 512 tokens of a block; want one of 1, 2, 4, 8, 16, 32, 64, 128, 256, 512"
    )
