"""Messages as bytes: a frame has its lengths and a checksum, so that damage is detected.

    |magic 4|header length 4|payload length 8|checksum 4|header, JSON|payload, the bytes of a tensor|

Numbers are in network order; the checksum (CRC-32) is over everything else.
"""

import json
import struct
import zlib
from operator import index
from typing import Any, NamedTuple, get_args, get_origin, get_type_hints

import torch

from engine_under_test.errors import EngineError
from engine_under_test.messages import Message, PageData

MAGIC = b"swk1"
FIXED = struct.Struct("!4sIQI")
MAX_HEADER = 1 << 16
MAX_PAYLOAD = 1 << 32
KINDS = {kind.__name__: kind for kind in get_args(Message)}
FIELDS = {kind: get_type_hints(kind) for kind in KINDS.values()}
DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.uint8)
}


class FrameDamaged(EngineError):
    """The bytes are no frame, or differ from the frame that was sent."""


class Preamble(NamedTuple):
    """The fixed fields at the start of each frame; lengths in bytes."""

    header_len: int
    payload_len: int
    checksum: int

    @property
    def body_len(self) -> int:
        return self.header_len + self.payload_len


def encode(message: Message) -> bytes:
    """A message as a frame."""
    fields, payload = message._asdict(), b""
    if isinstance(message, PageData):
        pages = message.pages.contiguous().cpu()
        fields["pages"] = {"dtype": str(pages.dtype).removeprefix("torch."), "shape": list(pages.shape)}
        payload = pages.flatten().view(torch.uint8).numpy().tobytes() if pages.numel() else b""
    header = json.dumps({"kind": type(message).__name__, **fields}).encode()
    return FIXED.pack(MAGIC, len(header), len(payload), _checksum(header, payload)) + header + payload


def read_preamble(data: bytes) -> Preamble:
    """The first FIXED.size bytes of a frame.  Raises FrameDamaged."""
    magic, header_len, payload_len, checksum = FIXED.unpack(data)
    if magic != MAGIC or header_len > MAX_HEADER or payload_len > MAX_PAYLOAD:
        raise FrameDamaged("the preamble of a frame has a wrong magic or a length above its limit")
    return Preamble(header_len, payload_len, checksum)


def read_body(preamble: Preamble, data: bytes) -> Message:
    """The message of a frame, from its header and payload.  Raises FrameDamaged."""
    header, payload = data[: preamble.header_len], data[preamble.header_len :]
    if len(data) != preamble.body_len or _checksum(header, payload) != preamble.checksum:
        raise FrameDamaged("the length or the checksum of a frame does not match its preamble")
    try:
        return _read(json.loads(header), payload)
    except (ValueError, TypeError, KeyError, RuntimeError) as error:
        what = str(error).partition("\n")[0]  # torch adds frames of its own code
        raise FrameDamaged(f"a frame is intact, but its message is invalid: {what}") from error


class FrameReader:
    """Reassembles messages from a stream of bytes."""

    def __init__(self) -> None:
        self._bytes = bytearray()
        self._preamble: Preamble | None = None  # of the frame that is being read

    def feed(self, data: bytes) -> None:
        self._bytes += data

    def next(self) -> Message | None:
        """The next message; None where its frame is incomplete.  Raises FrameDamaged."""
        if self._preamble is None:
            if len(self._bytes) < FIXED.size:
                return None
            self._preamble = read_preamble(self._pop(FIXED.size))
        if len(self._bytes) < self._preamble.body_len:
            return None
        preamble, self._preamble = self._preamble, None
        return read_body(preamble, self._pop(preamble.body_len))

    def _pop(self, length: int) -> bytes:
        first = bytes(self._bytes[:length])
        del self._bytes[:length]
        return first


def _read(header: Any, payload: bytes) -> Message:
    """Raises ValueError, TypeError, KeyError or RuntimeError for an invalid header."""
    fields = dict(header)
    kind = KINDS[fields.pop("kind")]
    if kind is PageData:
        layout = fields["pages"]
        flat = torch.frombuffer(bytearray(payload), dtype=torch.uint8) if payload else torch.empty(0, dtype=torch.uint8)
        fields["pages"] = flat.view(DTYPES[layout["dtype"]]).reshape(layout["shape"])
    if "tokens" in fields:
        fields["tokens"] = tuple(map(index, fields["tokens"]))
    message: Message = kind(**fields)
    for name, wanted in FIELDS[kind].items():
        if not isinstance(getattr(message, name), get_origin(wanted) or wanted):
            raise TypeError(f"{name} {getattr(message, name)!r} is not a {wanted}")
    return message


def decode(frame: bytes) -> Message:
    """The message of one complete frame.  Raises FrameDamaged."""
    if len(frame) < FIXED.size:
        raise FrameDamaged("a frame is shorter than its preamble")
    return read_body(read_preamble(frame[: FIXED.size]), frame[FIXED.size :])


def _checksum(header: bytes, payload: bytes) -> int:
    """The lengths are included, so that bytes cannot move between header and payload."""
    return zlib.crc32(payload, zlib.crc32(header, zlib.crc32(struct.pack("!IQ", len(header), len(payload)))))
