"""One connection of a link: a challenge in both directions, then sealed frames.

Each end sends a hello with its place and a random nonce.  The shared secret and both nonces give one key for each
direction.  The first frame that is sealed with its key proves that the peer has the secret, and does not repeat an
older connection.  Before that frame an end sends nothing but its hello and one heartbeat, and reads little.
"""

import hmac
import os
import socket
from collections import deque
from contextlib import suppress
from enum import StrEnum

from swarden.engine_under_test.disaggregation.frames import FrameDamaged, FrameReader, Heartbeat, Seal, encode
from swarden.engine_under_test.messages import Message

NONCE_LEN = 32
CLOSED = "the peer has closed the connection"
NOTHING_ANSWERED = Heartbeat(1 << 40)
MAX_READ = 1 << 23  # bytes before another connection, or another thread, has its turn


class ConnectionEnd(StrEnum):
    """The place of an end of a connection; the value is the start of its hello, with the version of the protocol."""

    LISTENING = "swarden link 2 L"
    CONNECTING = "swarden link 2 C"

    @property
    def other(self) -> "ConnectionEnd":
        return ConnectionEnd.CONNECTING if self is ConnectionEnd.LISTENING else ConnectionEnd.LISTENING


class Connection:
    """A non-blocking stream socket, and the frames on it.  Every method may raise OSError: the connection is lost."""

    def __init__(self, stream: socket.socket, place: ConnectionEnd, secret: bytes, *, max_payload: int) -> None:
        stream.setblocking(False)
        if stream.family != socket.AF_UNIX:
            stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.stream = stream
        self.is_established = False  # has the peer proved that it has the secret
        self.backlog = 0  # bytes that wait to be sent
        self.num_read = 0  # bytes of frames
        self.heartbeat = NOTHING_ANSWERED  # the peer's last
        self._place = place
        self._secret = secret
        self._max_payload = max_payload
        self._nonce = os.urandom(NONCE_LEN)
        self._hello = bytearray()  # of the peer
        self._channel: tuple[Seal, FrameReader] | None = None  # for the frames of this end, and of the peer
        self._outgoing: deque[memoryview] = deque()
        self._enqueue(memoryview(self._place.encode() + self._nonce))

    @property
    def has_outgoing(self) -> bool:
        return bool(self._outgoing)

    def send(self, message: Message | Heartbeat) -> None:
        """Queue a message, and write as much as the socket accepts."""
        assert self._channel is not None, "the peer's hello has not arrived"
        for part in encode(message, self._channel[0]):
            self._enqueue(part)
        self.write()

    def write(self) -> None:
        with suppress(BlockingIOError):
            while self._outgoing:
                count = self.stream.send(self._outgoing[0])
                self.backlog -= count
                if count == len(self._outgoing[0]):
                    self._outgoing.popleft()
                else:
                    self._outgoing[0] = self._outgoing[0][count:]

    def shake_hands(self) -> None:
        """Read up to the first frame.  Raises FrameDamaged where the peer does not have the secret."""
        with suppress(BlockingIOError):
            while not self.is_established:
                if self._channel is None:
                    self._read_hello()
                else:
                    self._read_frame(self._channel[1], [])

    def read(self, messages: list[Message]) -> None:
        """Append the messages of at most about MAX_READ bytes; raises FrameDamaged, or ConnectionError at the end."""
        assert self._channel is not None, "the peer's hello has not arrived"
        limit = self.num_read + MAX_READ
        with suppress(BlockingIOError):
            while self.num_read < limit:
                self._read_frame(self._channel[1], messages)

    def close(self) -> None:
        self.stream.close()

    def _read_hello(self) -> None:
        wanted = len(self._place.encode()) + NONCE_LEN
        data = self.stream.recv(wanted - len(self._hello))
        if not data:
            raise ConnectionError(CLOSED)
        self._hello += data
        expected = self._place.other.encode()
        if not expected.startswith(self._hello[: len(expected)]):
            raise FrameDamaged("a peer has sent no hello of the other end")
        if len(self._hello) == wanted:
            nonces = {self._place: self._nonce, self._place.other: bytes(self._hello[len(expected) :])}
            keys = {
                place: hmac.digest(
                    self._secret, place.encode() + b"".join(nonces[end] for end in ConnectionEnd), "sha256"
                )
                for place in ConnectionEnd
            }
            self._channel = Seal(keys[self._place]), FrameReader(keys[self._place.other], max_payload=0)
            self.send(NOTHING_ANSWERED)

    def _read_frame(self, reader: FrameReader, messages: list[Message]) -> None:
        count = self.stream.recv_into(reader.space)
        if not count:
            raise ConnectionError(CLOSED)
        self.num_read += count
        message = reader.wrote(count)
        if message is not None and not self.is_established:
            self.is_established, reader.max_payload = True, self._max_payload
        if isinstance(message, Heartbeat):
            self.heartbeat = message
        elif message is not None:
            messages.append(message)

    def _enqueue(self, part: memoryview) -> None:
        self._outgoing.append(part)
        self.backlog += len(part)
