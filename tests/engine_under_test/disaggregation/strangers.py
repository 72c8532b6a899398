"""Strangers on the port of a link, in the place of its listener, and between both ends."""

import os
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from threading import Thread

from swarden.engine_under_test.disaggregation.connection import NONCE_LEN, ConnectionEnd
from swarden.engine_under_test.disaggregation.frames import FIXED_LEN, LENGTHS, Seal
from swarden.engine_under_test.messages import Close, Invitation, KeepAlive, Message, PageAck, TransferEnd
from tests.engine_under_test.disaggregation.framed import frame_of

HELLO_LEN = len(ConnectionEnd.LISTENING.encode()) + NONCE_LEN
MAX_BEFORE_PROOF = HELLO_LEN + 200  # bytes that an end sends to a peer without the secret: its hello and a heartbeat
FORGED: Sequence[Message] = [
    *(Close(number, "forged") for number in range(1, 9)),
    *(Invitation(number, -4096, "forged") for number in range(1, 9)),
    PageAck(1, "full", 0, 10**18),
    TransferEnd(1, (7,) * 1000),
    KeepAlive(1),
]
TIMEOUT_S = 0.2  # for the answer of an end
Talk = Callable[[socket.socket], int]  # with an end of a link; the number of received bytes


def hello(place: ConnectionEnd) -> bytes:
    return place.encode() + os.urandom(NONCE_LEN)


def read_all(stream: socket.socket) -> int:
    """The number of bytes that arrive until the end hangs up, or is silent."""
    count = 0
    stream.settimeout(TIMEOUT_S)
    with suppress(OSError):
        while data := stream.recv(1 << 16):
            count += len(data)
    return count


def says(*parts: bytes) -> Talk:
    """Sends these bytes at once, and reads."""

    def talk(stream: socket.socket) -> int:
        with suppress(OSError):
            stream.sendall(b"".join(parts))
        return read_all(stream)

    return talk


def forges(place: ConnectionEnd) -> Talk:
    """Passes for an end, with a secret of its own."""
    seal = Seal(os.urandom(32))
    return says(hello(place), *(frame_of(message, seal) for message in FORGED))


def claims(place: ConnectionEnd, payload_len: int) -> Talk:
    """Claims a long frame after the hello, and sends some of it."""
    return says(hello(place), LENGTHS.pack(40, payload_len), bytes(1 << 20))


def echoes(stream: socket.socket) -> int:
    """Sends back what arrives."""
    count = 0
    stream.settimeout(TIMEOUT_S)
    with suppress(OSError):
        while data := stream.recv(1 << 16):
            count += len(data)
            stream.sendall(data)
    return count


def drips(place: ConnectionEnd) -> Talk:
    """Sends its hello byte by byte, and no more."""

    def talk(stream: socket.socket) -> int:
        with suppress(OSError):
            for byte in hello(place):
                stream.sendall(bytes([byte]))
        return read_all(stream)

    return talk


def hangs_up(_stream: socket.socket) -> int:
    return 0


class Proxy:
    """Between both ends of a link: passes on what arrives, but for the frames that `tamper` changes.

    `tamper` gets the number of a frame in its direction ("listening" or "connecting" sent it) and the frame, and
    returns the bytes in its place, or None to cut the connection.  Only the first connection is tampered with.
    """

    def __init__(self, target: tuple[str, int], tamper: Callable[[str, int, bytes], bytes | None]) -> None:
        self.num_connections = 0
        self.recorded = {"listening": bytearray(), "connecting": bytearray()}  # of the first connection
        self._target = target
        self._tamper = tamper
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address: tuple[str, int] = self._listener.getsockname()
        self._streams: list[socket.socket] = []
        Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        for stream in (self._listener, *self._streams):
            with suppress(OSError):
                stream.shutdown(socket.SHUT_RDWR)
            stream.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                here, _ = self._listener.accept()
                there = socket.create_connection(self._target)
                self._streams += [here, there]
                self.num_connections += 1
                for sender, source, sink in (("connecting", here, there), ("listening", there, here)):
                    arguments = (sender, source, sink, self.num_connections == 1)
                    Thread(target=self._pump, args=arguments, daemon=True).start()

    def _pump(self, sender: str, source: socket.socket, sink: socket.socket, is_first: bool) -> None:
        with suppress(OSError), source, sink, source.makefile("rb") as reader:
            sink.sendall(self._record(sender, is_first, reader.read(HELLO_LEN)))
            number = 0
            while fixed := reader.read(FIXED_LEN):
                frame = self._record(sender, is_first, fixed + reader.read(sum(LENGTHS.unpack_from(fixed))))
                changed = self._tamper(sender, number, frame) if is_first else frame
                if changed is None:
                    break
                sink.sendall(changed)
                number += 1
            for stream in (source, sink):
                stream.shutdown(socket.SHUT_RDWR)

    def _record(self, sender: str, is_first: bool, data: bytes) -> bytes:
        if is_first:
            self.recorded[sender] += data
        return data
