"""A message as bytes comes back as it was, and no damage to them goes unnoticed."""

from collections.abc import Sequence
from typing import get_args

import pytest
import torch

from engine_under_test.disaggregation.frames import (
    FIXED,
    MAGIC,
    MAX_HEADER,
    MAX_PAYLOAD,
    Fixed,
    FrameDamaged,
    decode,
    encode,
    read_fixed,
    read_rest,
)
from engine_under_test.messages import Alive, Ask, Finale, Got, Invite, Message, Over, Parcel

TERMS = "pages of 4 tokens, full of int64 [] a token"
PARCEL = Parcel(4, "swa", 7, 2, torch.arange(8).view(2, 4))
MESSAGES: Sequence[Message] = [
    Ask(1, TERMS),
    Invite(2, 8, TERMS),
    Alive(3),
    PARCEL,
    Got(4, "swa", 7, 2),
    Finale(5, (12,)),
    Over(6, "the prompt needs 13 full pages of 8"),
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
    """Those that are not refused as damaged."""
    taken = []
    for frame in frames:
        try:
            decode(frame)
        except FrameDamaged:
            continue
        taken.append(frame)
    return taken


# --- round trips


def test_there_is_a_message_of_each_kind_here():
    assert [type(message) for message in MESSAGES] == list(get_args(Message))


@OF_EACH_KIND
def test_a_message_comes_back(message):
    assert in_comparable_parts(decode(encode(message))) == in_comparable_parts(message)


@pytest.mark.parametrize(
    "message",
    [
        pytest.param(Finale(1, ()), id="no tokens"),
        pytest.param(Finale(1, (3, 0, 2**40)), id="several tokens"),
        pytest.param(Over(1), id="no reason"),
        pytest.param(Over(1, "a reason\n“in” Ω"), id="letters of all kinds"),
        pytest.param(Ask(2**62, ""), id="a large room"),
    ],
)
def test_unusual_contents_come_back(message):
    assert decode(encode(message)) == message


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_pages_of_each_dtype_come_back_to_the_bit(dtype):
    """Whatever the bits are: not a number, infinity, minus zero."""
    bits = torch.randint(0, 256, (2, 3, 4 * dtype.itemsize), dtype=torch.uint8, generator=torch.Generator())
    message = PARCEL._replace(pages=bits.view(dtype))

    assert in_comparable_parts(decode(encode(message))) == in_comparable_parts(message)


@pytest.mark.parametrize("shape", [(0,), (0, 4), (2, 0, 4, 3)], ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_an_empty_tensor_comes_back(dtype, shape):
    came = decode(encode(PARCEL._replace(pages=torch.empty(shape, dtype=dtype))))

    assert isinstance(came, Parcel)
    assert (came.pages.dtype, tuple(came.pages.shape)) == (dtype, shape)


def test_pages_that_do_not_lie_one_behind_the_other_come_back():
    message = PARCEL._replace(pages=torch.arange(24).view(2, 3, 4).permute(2, 0, 1)[::2])

    assert in_comparable_parts(decode(encode(message))) == in_comparable_parts(message)


def test_what_came_can_be_written():
    """It has bytes of its own."""
    frame = encode(PARCEL)
    came = decode(frame)
    assert isinstance(came, Parcel)
    came.pages.zero_()

    assert in_comparable_parts(decode(frame)) == in_comparable_parts(PARCEL)


def test_a_frame_is_read_in_two_parts_from_a_stream():
    stream = encode(PARCEL) + encode(Alive(3))

    fixed = read_fixed(stream[: FIXED.size])
    end = FIXED.size + fixed.rest_len
    first, second = read_rest(fixed, stream[FIXED.size : end]), decode(stream[end:])

    assert (in_comparable_parts(first), second) == (in_comparable_parts(PARCEL), Alive(3))


# --- damage


@OF_EACH_KIND
def test_no_byte_of_a_frame_can_be_flipped(message):
    frame = encode(message)
    flipped = [
        frame[:place] + bytes([frame[place] ^ way]) + frame[place + 1 :]
        for place in range(len(frame))
        for way in WAYS_TO_FLIP
    ]

    assert accepted(flipped) == []


@OF_EACH_KIND
def test_a_frame_that_is_cut_off_anywhere_is_refused(message):
    frame = encode(message)

    assert accepted([frame[:end] for end in range(len(frame))]) == []


def test_a_frame_with_bytes_behind_it_is_refused():
    assert accepted([encode(message) + b"\0" for message in MESSAGES]) == []


def test_bytes_that_change_places_are_refused():
    frame = encode(PARCEL)
    first, last = FIXED.size, len(frame)
    swapped = [
        frame[:place] + frame[place + 1 : place + 2] + frame[place : place + 1] + frame[place + 2 :]
        for place in range(first, last - 1)
        if frame[place] != frame[place + 1]
    ]

    assert (accepted(swapped), len(swapped) > 50) == ([], True)


def test_a_byte_that_moves_from_the_header_to_the_payload_is_refused():
    frame = encode(PARCEL)
    fixed = read_fixed(frame[: FIXED.size])

    moved = FIXED.pack(MAGIC, fixed.header_len - 1, fixed.payload_len + 1, fixed.checksum) + frame[FIXED.size :]

    assert accepted([moved]) == []


@pytest.mark.parametrize(
    ("magic", "header_len", "payload_len"),
    [
        pytest.param(b"swk2", 1, 1, id="another magic"),
        pytest.param(MAGIC, MAX_HEADER + 1, 0, id="a header too long"),
        pytest.param(MAGIC, 0, MAX_PAYLOAD + 1, id="a payload too long"),
    ],
)
def test_what_no_frame_begins_with_is_refused_before_the_rest_is_read(magic, header_len, payload_len):
    with pytest.raises(FrameDamaged) as caught:
        read_fixed(FIXED.pack(magic, header_len, payload_len, 0))

    assert str(caught.value) == "a frame begins with what no frame begins with"


def test_the_longest_frame_there_may_be_is_not_refused_at_its_beginning():
    begun = read_fixed(FIXED.pack(MAGIC, MAX_HEADER, MAX_PAYLOAD, 9))

    assert begun == Fixed(MAX_HEADER, MAX_PAYLOAD, 9)


@pytest.mark.parametrize(
    ("end", "complaint"),
    [
        pytest.param(FIXED.size - 1, "a frame is cut off in its beginning", id="in the beginning"),
        pytest.param(FIXED.size, "the bytes of a frame do not add up to what it says", id="behind the beginning"),
    ],
)
def test_what_is_wrong_with_a_frame_is_said(end, complaint):
    with pytest.raises(FrameDamaged) as caught:
        decode(encode(PARCEL)[:end])

    assert str(caught.value) == complaint
