"""Every message survives encoding, and every damaged frame is rejected."""

import json
from collections.abc import Sequence
from typing import get_args

import pytest
import torch

from engine_under_test.disaggregation.frames import (
    FIXED,
    MAGIC,
    MAX_HEADER,
    MAX_PAYLOAD,
    FrameDamaged,
    FrameReader,
    Preamble,
    _checksum,
    decode,
    encode,
    read_preamble,
)
from engine_under_test.messages import (
    Close,
    Invitation,
    KeepAlive,
    Message,
    PageAck,
    PageData,
    TransferEnd,
    TransferRequest,
)

TERMS = "pages of 4 tokens, full of int64 [] a token"
PAGE_DATA = PageData(4, "swa", 7, 2, torch.arange(8).view(2, 4))
MESSAGES: Sequence[Message] = [
    TransferRequest(1, TERMS),
    Invitation(2, 8, TERMS),
    KeepAlive(3),
    PAGE_DATA,
    PageAck(4, "swa", 7, 2),
    TransferEnd(5, (12,)),
    Close(6, "the prompt needs 13 full pages of 8"),
]
OF_EACH_KIND = pytest.mark.parametrize("message", MESSAGES, ids=[type(message).__name__ for message in MESSAGES])
DTYPES = [torch.int64, torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.uint8]
WAYS_TO_FLIP = (1, 2, 4, 8, 16, 32, 64, 128, 0xFF)  # each bit of a byte alone, and all of them


def bits_of(pages: torch.Tensor) -> list[int]:
    return pages.contiguous().flatten().view(torch.uint8).tolist()


def in_comparable_parts(message: Message) -> tuple[object, ...]:
    """The message with the dtype, the shape and the bits of its tensor in the tensor's place."""
    parts: tuple[object, ...] = (type(message), *message)
    return tuple((part.dtype, part.shape, bits_of(part)) if isinstance(part, torch.Tensor) else part for part in parts)


def accepted(frames: Sequence[bytes]) -> list[bytes]:
    """The frames that are not rejected as damaged."""
    taken = []
    for frame in frames:
        try:
            decode(frame)
        except FrameDamaged:
            continue
        taken.append(frame)
    return taken


# --- round trips


def test_messages_cover_each_kind():
    assert [type(message) for message in MESSAGES] == list(get_args(Message))


@OF_EACH_KIND
def test_message_survives_encoding(message):
    assert in_comparable_parts(decode(encode(message))) == in_comparable_parts(message)


@pytest.mark.parametrize(
    "message",
    [
        pytest.param(TransferEnd(1, ()), id="no tokens"),
        pytest.param(TransferEnd(1, (3, 0, 2**40)), id="several tokens"),
        pytest.param(Close(1), id="no reason"),
        pytest.param(Close(1, "a reason\n“in” Ω"), id="letters of all kinds"),
        pytest.param(TransferRequest(2**62, ""), id="a large id"),
    ],
)
def test_unusual_fields_survive_encoding(message):
    assert decode(encode(message)) == message


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_pages_of_each_dtype_survive_encoding_bit_for_bit(dtype):
    """Including NaN, infinity and minus zero."""
    bits = torch.randint(0, 256, (2, 3, 4 * dtype.itemsize), dtype=torch.uint8, generator=torch.Generator())
    message = PAGE_DATA._replace(pages=bits.view(dtype))

    assert in_comparable_parts(decode(encode(message))) == in_comparable_parts(message)


@pytest.mark.parametrize("shape", [(0,), (0, 4), (2, 0, 4, 3)], ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_empty_tensor_survives_encoding(dtype, shape):
    decoded = decode(encode(PAGE_DATA._replace(pages=torch.empty(shape, dtype=dtype))))

    assert isinstance(decoded, PageData)
    assert (decoded.pages.dtype, tuple(decoded.pages.shape)) == (dtype, shape)


def test_non_contiguous_pages_survive_encoding():
    message = PAGE_DATA._replace(pages=torch.arange(24).view(2, 3, 4).permute(2, 0, 1)[::2])

    assert in_comparable_parts(decode(encode(message))) == in_comparable_parts(message)


def test_decoded_pages_own_their_memory():
    frame = encode(PAGE_DATA)
    decoded = decode(frame)
    assert isinstance(decoded, PageData)
    decoded.pages.zero_()

    assert in_comparable_parts(decode(frame)) == in_comparable_parts(PAGE_DATA)


def test_reader_reassembles_messages_from_single_bytes():
    reader, messages = FrameReader(), []

    for byte in encode(PAGE_DATA) + encode(KeepAlive(3)):
        reader.feed(bytes([byte]))
        messages += [message for message in [reader.next()] if message is not None]

    first, second = messages
    assert (in_comparable_parts(first), second) == (in_comparable_parts(PAGE_DATA), KeepAlive(3))


# --- damage


@OF_EACH_KIND
def test_frame_with_a_changed_byte_is_rejected(message):
    frame = encode(message)
    flipped = [
        frame[:place] + bytes([frame[place] ^ way]) + frame[place + 1 :]
        for place in range(len(frame))
        for way in WAYS_TO_FLIP
    ]

    assert accepted(flipped) == []


@OF_EACH_KIND
def test_truncated_frame_is_rejected(message):
    frame = encode(message)

    assert accepted([frame[:end] for end in range(len(frame))]) == []


def test_frame_with_trailing_bytes_is_rejected():
    assert accepted([encode(message) + b"\0" for message in MESSAGES]) == []


def test_frame_with_swapped_bytes_is_rejected():
    frame = encode(PAGE_DATA)
    first, last = FIXED.size, len(frame)
    swapped = [
        frame[:place] + frame[place + 1 : place + 2] + frame[place : place + 1] + frame[place + 2 :]
        for place in range(first, last - 1)
        if frame[place] != frame[place + 1]
    ]

    assert (accepted(swapped), len(swapped) > 50) == ([], True)


def test_frame_whose_header_is_shortened_is_rejected():
    frame = encode(PAGE_DATA)
    preamble = read_preamble(frame[: FIXED.size])
    header_len, payload_len = preamble.header_len - 1, preamble.payload_len + 1

    moved = FIXED.pack(MAGIC, header_len, payload_len, preamble.checksum) + frame[FIXED.size :]

    assert accepted([moved]) == []


@pytest.mark.parametrize(
    ("magic", "header_len", "payload_len"),
    [
        pytest.param(b"swk2", 1, 1, id="another magic"),
        pytest.param(MAGIC, MAX_HEADER + 1, 0, id="a header too long"),
        pytest.param(MAGIC, 0, MAX_PAYLOAD + 1, id="a payload too long"),
    ],
)
def test_invalid_preamble_is_rejected(magic, header_len, payload_len):
    with pytest.raises(FrameDamaged):
        read_preamble(FIXED.pack(magic, header_len, payload_len, 0))


def test_preamble_of_the_longest_frame_is_accepted():
    preamble = read_preamble(FIXED.pack(MAGIC, MAX_HEADER, MAX_PAYLOAD, 9))

    assert preamble == Preamble(MAX_HEADER, MAX_PAYLOAD, 9)


@pytest.mark.parametrize(
    "fields",
    [
        {"kind": "Whisper", "transfer_id": 1},
        {"kind": "KeepAlive"},
        {"kind": "KeepAlive", "transfer_id": "one"},
        {"kind": "Close", "transfer_id": 1, "reason": None},
        {"kind": "PageAck", "transfer_id": 1, "pool": ["full"], "first": 0, "num_pages": 1},
        {"kind": "TransferEnd", "transfer_id": 1, "tokens": ["a"]},
        5,
        "KeepAlive",
        None,
        {"kind": "KeepAlive", "transfer_id": 1, "more": 2},
        {"transfer_id": 1},
        {
            "kind": "PageData",
            "transfer_id": 1,
            "pool": "full",
            "first": 0,
            "num_pages": 1,
            "pages": {"dtype": "int3", "shape": []},
        },
    ],
)
def test_intact_frame_with_an_invalid_message_is_rejected(fields):
    header = json.dumps(fields).encode()
    frame = FIXED.pack(MAGIC, len(header), 0, _checksum(header, b"")) + header

    with pytest.raises(FrameDamaged):
        decode(frame)
