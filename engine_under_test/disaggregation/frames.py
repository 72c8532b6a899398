"""Messages as bytes: a frame says how long it is and what its bytes add up to, so that damage shows.

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
from engine_under_test.messages import Message, Parcel

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
    """Bytes that are no frame, or not the one that was sent."""


class Fixed(NamedTuple):
    """What stands at the beginning of each frame, in bytes."""

    header_len: int
    payload_len: int
    checksum: int

    @property
    def rest_len(self) -> int:
        """How many bytes come behind it."""
        return self.header_len + self.payload_len


def encode(message: Message) -> bytes:
    """A message as a frame."""
    fields, payload = message._asdict(), b""
    if isinstance(message, Parcel):
        pages = message.pages.contiguous().cpu()
        fields["pages"] = {"dtype": str(pages.dtype).removeprefix("torch."), "shape": list(pages.shape)}
        payload = pages.flatten().view(torch.uint8).numpy().tobytes() if pages.numel() else b""
    header = json.dumps({"kind": type(message).__name__, **fields}).encode()
    return FIXED.pack(MAGIC, len(header), len(payload), _checksum(header, payload)) + header + payload


def read_fixed(data: bytes) -> Fixed:
    """The beginning of a frame, FIXED.size bytes.  Raises FrameDamaged."""
    magic, header_len, payload_len, checksum = FIXED.unpack(data)
    if magic != MAGIC or header_len > MAX_HEADER or payload_len > MAX_PAYLOAD:
        raise FrameDamaged("a frame begins with what no frame begins with")
    return Fixed(header_len, payload_len, checksum)


def read_rest(fixed: Fixed, data: bytes) -> Message:
    """The message of a frame that begins with `fixed`.  Raises FrameDamaged."""
    header, payload = data[: fixed.header_len], data[fixed.header_len :]
    if len(data) != fixed.rest_len or _checksum(header, payload) != fixed.checksum:
        raise FrameDamaged("the bytes of a frame do not add up to what it says")
    try:
        return _read(json.loads(header), payload)
    except (ValueError, TypeError, KeyError, RuntimeError) as error:
        raise FrameDamaged(f"a frame is whole, and says what nobody here understands: {error}") from error


class FrameReader:
    """Takes bytes as they come, and gives the messages of whole frames."""

    def __init__(self) -> None:
        self._bytes = bytearray()
        self._fixed: Fixed | None = None  # the beginning of the frame that is being read

    def take(self, data: bytes) -> None:
        self._bytes += data

    def next(self) -> Message | None:
        """None where no frame is whole yet.  Raises FrameDamaged."""
        if self._fixed is None:
            if len(self._bytes) < FIXED.size:
                return None
            self._fixed = read_fixed(self._cut(FIXED.size))
        if len(self._bytes) < self._fixed.rest_len:
            return None
        fixed, self._fixed = self._fixed, None
        return read_rest(fixed, self._cut(fixed.rest_len))

    def _cut(self, length: int) -> bytes:
        first = bytes(self._bytes[:length])
        del self._bytes[:length]
        return first


def _read(header: Any, payload: bytes) -> Message:
    """Raises what is raised where something is not as it should be."""
    fields = dict(header)
    kind = KINDS[fields.pop("kind")]
    if kind is Parcel:
        said = fields["pages"]
        flat = torch.frombuffer(bytearray(payload), dtype=torch.uint8) if payload else torch.empty(0, dtype=torch.uint8)
        fields["pages"] = flat.view(DTYPES[said["dtype"]]).reshape(said["shape"])
    if "tokens" in fields:
        fields["tokens"] = tuple(map(index, fields["tokens"]))
    message: Message = kind(**fields)
    for name, wanted in FIELDS[kind].items():
        if not isinstance(getattr(message, name), get_origin(wanted) or wanted):
            raise TypeError(f"{name} {getattr(message, name)!r} is no {wanted}")
    return message


def decode(frame: bytes) -> Message:
    """The message of a whole frame.  Raises FrameDamaged."""
    if len(frame) < FIXED.size:
        raise FrameDamaged("a frame is cut off in its beginning")
    return read_rest(read_fixed(frame[: FIXED.size]), frame[FIXED.size :])


def _checksum(header: bytes, payload: bytes) -> int:
    """Over the lengths, too: bytes that move from one part to the other are damage."""
    return zlib.crc32(payload, zlib.crc32(header, zlib.crc32(struct.pack("!IQ", len(header), len(payload)))))
