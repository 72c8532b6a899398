"""Every message survives encoding, and every damaged frame is rejected."""

import json
from collections.abc import Sequence
from typing import get_args

import pytest
import torch

from swarden.engine_under_test.disaggregation.frames import (
    FIXED_LEN,
    LENGTHS,
    MAX_HEADER,
    FrameDamaged,
    FrameReader,
    Heartbeat,
    Seal,
    encode,
)
from swarden.engine_under_test.messages import (
    Close,
    Invitation,
    KeepAlive,
    Message,
    PageAck,
    PageData,
    TransferEnd,
    TransferRequest,
)
from tests.engine_under_test.disaggregation.framed import KEY, MAX_PAYLOAD, frame_of, messages_of

TERMS = "pages of 4 tokens, full of int64 [] a token"
PAGE_DATA = PageData(4, "swa", 7, 2, torch.arange(8).view(2, 4), (-(1 << 63), (1 << 63) - 1))
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


def decoded(message: Message) -> Message:
    [one] = messages_of(frame_of(message))
    return one


def sealed(header: bytes, payload: bytes = b"") -> bytes:
    """The first frame of a direction, with these bytes."""
    return LENGTHS.pack(len(header), len(payload)) + Seal(KEY).next(header, payload) + header + payload


def accepted(frames: Sequence[bytes]) -> list[bytes]:
    """The frames that give a message, as the first of their direction."""
    taken = []
    for frame in frames:
        try:
            messages = messages_of(frame)
        except FrameDamaged:
            continue
        taken += [frame] * len(messages)
    return taken


# --- round trips


def test_messages_cover_each_kind():
    assert [type(message) for message in MESSAGES] == list(get_args(Message))


@OF_EACH_KIND
def test_message_survives_encoding(message):
    assert in_comparable_parts(decoded(message)) == in_comparable_parts(message)


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
    assert decoded(message) == message


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_pages_of_each_dtype_survive_encoding_bit_for_bit(dtype):
    """The pages also have NaN, infinity and minus zero."""
    bits = torch.randint(0, 256, (2, 3, 4 * dtype.itemsize), dtype=torch.uint8, generator=torch.Generator())
    message = PAGE_DATA._replace(pages=bits.view(dtype))

    assert in_comparable_parts(decoded(message)) == in_comparable_parts(message)


@pytest.mark.parametrize("shape", [(0,), (0, 4), (2, 0, 4, 3)], ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_empty_tensor_survives_encoding(dtype, shape):
    message = decoded(PAGE_DATA._replace(pages=torch.empty(shape, dtype=dtype)))

    assert isinstance(message, PageData)
    assert (message.pages.dtype, tuple(message.pages.shape)) == (dtype, shape)


def test_non_contiguous_pages_survive_encoding():
    message = PAGE_DATA._replace(pages=torch.arange(24).view(2, 3, 4).permute(2, 0, 1)[::2])

    assert in_comparable_parts(decoded(message)) == in_comparable_parts(message)


def test_decoded_pages_own_their_memory():
    frame = bytearray(frame_of(PAGE_DATA))
    [message] = messages_of(frame)

    frame[:] = bytes(len(frame))

    assert in_comparable_parts(message) == in_comparable_parts(PAGE_DATA)


def test_reader_reassembles_messages_from_single_bytes():
    reader, seal, messages = FrameReader(KEY, max_payload=MAX_PAYLOAD), Seal(KEY), list[Message]()

    for byte in frame_of(PAGE_DATA, seal) + frame_of(KeepAlive(3), seal):
        messages += reader.feed(bytes([byte]))

    first, second = messages
    assert (in_comparable_parts(first), second) == (in_comparable_parts(PAGE_DATA), KeepAlive(3))


# --- damage


@OF_EACH_KIND
def test_frame_with_a_changed_byte_is_rejected(message):
    frame = frame_of(message)
    flipped = [
        frame[:place] + bytes([frame[place] ^ way]) + frame[place + 1 :]
        for place in range(len(frame))
        for way in WAYS_TO_FLIP
    ]

    assert accepted(flipped) == []


@OF_EACH_KIND
def test_truncated_frame_gives_no_message(message):
    frame = frame_of(message)

    assert accepted([frame[:end] for end in range(len(frame))]) == []


def test_frame_whose_header_is_shortened_is_rejected():
    frame = frame_of(PAGE_DATA)
    header_len, payload_len = LENGTHS.unpack_from(frame)

    moved = LENGTHS.pack(header_len - 1, payload_len + 1) + frame[LENGTHS.size :]

    assert accepted([moved]) == []


@pytest.mark.parametrize(
    "order",
    [
        pytest.param([1], id="the first is left out"),
        pytest.param([1, 0], id="in reverse"),
        pytest.param([0, 0], id="repeated"),
        pytest.param([0, 2], id="one is left out"),
    ],
)
def test_frame_that_is_not_the_next_is_rejected(order):
    seal = Seal(KEY)
    frames = [frame_of(KeepAlive(number), seal) for number in range(3)]

    with pytest.raises(FrameDamaged):
        messages_of(b"".join(frames[number] for number in order))


def test_frame_with_another_key_is_rejected():
    with pytest.raises(FrameDamaged):
        messages_of(frame_of(KeepAlive(1), Seal(b"another key")))


# --- lengths


@pytest.mark.parametrize(
    ("header_len", "payload_len"),
    [
        pytest.param(MAX_HEADER + 1, 0, id="a header too long"),
        pytest.param(0, 0, id="no header"),
        pytest.param(40, MAX_PAYLOAD + 1, id="a payload too long"),
        pytest.param(40, 1 << 32, id="a payload of 4 GiB"),
    ],
)
def test_length_beyond_its_limit_is_rejected_before_anything_is_allocated(header_len, payload_len):
    reader = FrameReader(KEY, max_payload=MAX_PAYLOAD)

    with pytest.raises(FrameDamaged, match=f"a payload of {payload_len}; want at most {MAX_HEADER} and {MAX_PAYLOAD}"):
        reader.feed(LENGTHS.pack(header_len, payload_len) + bytes(32))

    assert len(reader.space) <= FIXED_LEN


def test_longest_lengths_are_accepted():
    reader = FrameReader(KEY, max_payload=MAX_PAYLOAD)

    reader.feed(LENGTHS.pack(MAX_HEADER, MAX_PAYLOAD) + bytes(32))

    assert len(reader.space) == MAX_HEADER


# --- authentic frames with an invalid message

ANNOUNCED = {"kind": "PageData", "transfer_id": 1, "pool": "full", "first": 0, "num_pages": 1}


@pytest.mark.parametrize(
    "fields",
    [
        {"kind": "Whisper", "transfer_id": 1},
        {"kind": "KeepAlive"},
        {"kind": "KeepAlive", "transfer_id": "one"},
        {"kind": "KeepAlive", "transfer_id": True},
        {"kind": "KeepAlive", "transfer_id": 1.0},
        {"kind": "Close", "transfer_id": 1, "reason": None},
        {"kind": "PageAck", "transfer_id": 1, "pool": ["full"], "first": 0, "num_pages": 1},
        {"kind": "TransferEnd", "transfer_id": 1, "tokens": ["a"]},
        5,
        "KeepAlive",
        None,
        {"kind": "KeepAlive", "transfer_id": 1, "more": 2},
        {"transfer_id": 1},
        {"kind": ["KeepAlive"], "transfer_id": 1},
        ANNOUNCED | {"pages": {"dtype": "int3", "shape": []}},
    ],
)
def test_authentic_frame_with_an_invalid_message_is_rejected(fields):
    with pytest.raises(FrameDamaged, match=r"^a frame is authentic, but its message is invalid: "):
        messages_of(sealed(json.dumps(fields).encode()))


@pytest.mark.parametrize(
    "header",
    [
        pytest.param(b"[" * 60_000, id="nested too deeply"),
        pytest.param(b'{"kind": "KeepAlive", "transfer_id": ' + b"9" * 5000 + b"}", id="a number of 5000 digits"),
        pytest.param(b"\xff\xfe", id="no text"),
    ],
)
def test_authentic_frame_with_an_unreadable_header_is_rejected(header):
    with pytest.raises(FrameDamaged):
        messages_of(sealed(header))


def test_payload_of_a_message_without_one_is_rejected():
    with pytest.raises(FrameDamaged):
        messages_of(sealed(b'{"kind": "KeepAlive", "transfer_id": 1}', b"more"))


def test_heartbeat_is_no_message_of_the_engines():
    seal = Seal(KEY)

    frames = b"".join(encode(Heartbeat(3), seal)) + frame_of(KeepAlive(1), seal)

    assert messages_of(frames) == [KeepAlive(1)]
