"""Messages as bytes in sealed frames: a frame that was changed, repeated, left out or moved is rejected.

    |header length 4|payload length 8|seal 32|header, JSON|payload, the bytes of a tensor|

Lengths are in network order.  The seal is HMAC-SHA256, under the key of one direction of one connection, over the
number of the frame, both lengths, the header and the payload.
"""

import hmac
import json
import struct
from collections.abc import Sequence
from operator import index
from typing import Any, NamedTuple, get_args, get_origin, get_type_hints

import torch

from swarden.engine_under_test.errors import EngineError
from swarden.engine_under_test.messages import Message, PageData
from swarden.engine_under_test.pools.kv_store import bytes_of

LENGTHS = struct.Struct("!IQ")
NUMBERED = struct.Struct("!QIQ")  # the number of a frame and its lengths
SEAL = "sha256"
SEAL_LEN = 32
FIXED_LEN = LENGTHS.size + SEAL_LEN
MAX_HEADER = 1 << 16


class Heartbeat(NamedTuple):
    """From a link to its peer: the engine here has answered all messages that arrived longer than `lag_ms` ago."""

    lag_ms: int


KINDS = {kind.__name__: kind for kind in (*get_args(Message), Heartbeat)}
FIELDS = {kind: get_type_hints(kind) for kind in KINDS.values()}
DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.uint8)
}


class FrameDamaged(EngineError):
    """The bytes are no frame, are too many, or differ from the next frame that was sealed."""


class Seal:
    """The seals of one direction.  Each frame has the next number, so the order of the frames is sealed too."""

    def __init__(self, key: bytes) -> None:
        self._keyed = hmac.new(key, digestmod=SEAL)
        self._num_frames = 0

    def next(self, header: bytes | bytearray, payload: bytes | bytearray | memoryview) -> bytes:
        """The seal of the next frame, if it has this header and this payload."""
        keyed = self._keyed.copy()
        keyed.update(NUMBERED.pack(self._num_frames, len(header), len(payload)))
        keyed.update(header)
        keyed.update(payload)
        self._num_frames += 1
        return keyed.digest()


def encode(message: Message | Heartbeat, seal: Seal) -> Sequence[memoryview]:
    """A message as the next frame, in parts; the last part is the memory of its tensor, if it has one."""
    fields, payload = message._asdict(), memoryview(b"")
    if isinstance(message, PageData):
        pages = message.pages
        fields["pages"] = {"dtype": str(pages.dtype).removeprefix("torch."), "shape": list(pages.shape)}
        payload = bytes_of(pages)
    header = json.dumps({"kind": type(message).__name__, **fields}).encode()
    assert len(header) <= MAX_HEADER, f"the header of a {type(message).__name__} has {len(header)} bytes"
    fixed = LENGTHS.pack(len(header), len(payload)) + seal.next(header, payload)
    return [memoryview(fixed + header), *([payload] if payload else [])]


class FrameReader:
    """Reassembles the messages of a stream.  Lengths are checked before memory is allocated.

    The stream is written to `space`: first the fixed part of a frame, then its header, then its payload.
    """

    def __init__(self, key: bytes, *, max_payload: int) -> None:
        self.max_payload = max_payload
        self._seal = Seal(key)
        self._parts = [bytearray(FIXED_LEN)]  # of the frame that is being read
        self._num_read = 0  # bytes of the last part

    @property
    def space(self) -> memoryview:
        """The memory for the next bytes; never empty."""
        return memoryview(self._parts[-1])[self._num_read :]

    def feed(self, data: bytes | bytearray) -> list[Message]:
        """The messages whose frames are complete with these bytes, without heartbeats.  Raises FrameDamaged."""
        messages, rest = [], memoryview(data)
        while rest:
            count = min(len(rest), len(space := self.space))
            space[:count], rest = rest[:count], rest[count:]
            message = self.wrote(count)
            if message is not None and not isinstance(message, Heartbeat):
                messages.append(message)
        return messages

    def wrote(self, count: int) -> Message | Heartbeat | None:
        """Note that `space` got `count` bytes; returns the message if its frame is complete.  Raises FrameDamaged."""
        self._num_read += count
        while self._num_read == len(self._parts[-1]):
            if len(self._parts) == 1:
                self._check_lengths()
            if len(self._parts) == 3:
                fixed, header, payload = self._parts
                self._parts = [bytearray(FIXED_LEN)]
                self._num_read = 0
                if not hmac.compare_digest(self._seal.next(header, payload), fixed[LENGTHS.size :]):
                    raise FrameDamaged("the seal of a frame does not match")
                return _message(header, payload)
            self._parts.append(bytearray(self._lengths[len(self._parts) - 1]))
            self._num_read = 0
        return None

    @property
    def _lengths(self) -> tuple[int, int]:
        header_len, payload_len = LENGTHS.unpack_from(self._parts[0])
        return header_len, payload_len

    def _check_lengths(self) -> None:
        header_len, payload_len = self._lengths
        if not 0 < header_len <= MAX_HEADER or payload_len > self.max_payload:
            raise FrameDamaged(
                f"a frame has a header of {header_len} bytes and a payload of {payload_len}; "
                f"want at most {MAX_HEADER} and {self.max_payload}"
            )


def _message(header: bytearray, payload: bytearray) -> Message | Heartbeat:
    """The message of an authentic frame.  Raises FrameDamaged where it is not one of the known messages."""
    try:
        return _read(json.loads(header), payload)
    except (ValueError, TypeError, KeyError, RuntimeError) as error:  # RuntimeError: also a header nested too deeply
        what = str(error).partition("\n")[0]  # torch adds frames of its own code
        raise FrameDamaged(f"a frame is authentic, but its message is invalid: {what}") from error


def _read(header: Any, payload: bytearray) -> Message | Heartbeat:
    fields = dict(header)
    kind = KINDS[fields.pop("kind")]
    if kind is PageData:
        layout = fields["pages"]
        flat = torch.frombuffer(payload, dtype=torch.uint8) if payload else torch.empty(0, dtype=torch.uint8)
        fields["pages"] = flat.view(DTYPES[layout["dtype"]]).reshape(layout["shape"])
    elif payload:
        raise ValueError(f"a {kind.__name__} has no payload, and {len(payload)} bytes follow")
    for name in {"tokens", "checksums"} & fields.keys():
        fields[name] = tuple(map(index, fields[name]))
    message: Message | Heartbeat = kind(**fields)
    for name, wanted in FIELDS[kind].items():
        value = getattr(message, name)
        if isinstance(value, bool) or not isinstance(value, get_origin(wanted) or wanted):
            raise TypeError(f"{name} {value!r} is not a {wanted}")
    return message
