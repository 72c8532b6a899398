"""Messages between two processes, as frames over TCP; what is lost with a connection the engines say again."""

import socket
from collections import deque

from engine_under_test.disaggregation.frames import FIXED, Fixed, FrameDamaged, encode, read_fixed, read_rest
from engine_under_test.messages import Message

LOOPBACK = "127.0.0.1"
CHUNK = 1 << 20  # bytes that are read at once
MAX_BACKLOG = 1 << 30  # bytes that wait for a reader who is slow; beyond that what is sent is lost


class TcpLink:
    """One end of a link that never blocks and never raises: it comes up, and up again, whenever the other end is there.

    One end listens on a port, of its own choice where that is 0, and takes whoever connects last; the other end
    connects.  A frame that is damaged ends its connection, for nobody knows where the next one begins.
    """

    def __init__(self, port: int, *, listens: bool) -> None:
        self._listener: socket.socket | None = None
        if listens:
            self._listener = socket.create_server((LOOPBACK, port), reuse_port=False)
            self._listener.setblocking(False)
            port = self._listener.getsockname()[1]
        self.port = port
        self._peer: socket.socket | None = None
        self._outgoing: deque[memoryview] = deque()
        self._backlog = 0
        self._incoming = bytearray()
        self._fixed: Fixed | None = None  # the beginning of the frame that is being read

    def send(self, message: Message) -> None:
        if self._peer is None:
            self._come_up()
        if self._peer is not None and self._backlog < MAX_BACKLOG:
            frame = memoryview(encode(message))
            self._outgoing.append(frame)
            self._backlog += len(frame)
        self._write()

    def receive(self) -> list[Message]:
        self._come_up()
        self._write()
        self._read()
        come: list[Message] = []
        try:
            while (message := self._next()) is not None:
                come.append(message)
        except FrameDamaged:
            self._hang_up()
        return come

    @property
    def is_clear(self) -> bool:
        return not self._outgoing

    def close(self) -> None:
        """Hang up, and listen no more."""
        self._hang_up()
        if self._listener is not None:
            self._listener.close()
            self._listener = None

    def _come_up(self) -> None:
        """Take who has connected last, or connect where nobody is there."""
        if self._listener is not None:
            try:
                while True:
                    peer, _ = self._listener.accept()
                    self._take(peer)
            except OSError:  # nobody else is there, or whoever was has gone again
                return
        if self._peer is None:
            try:
                self._take(socket.create_connection((LOOPBACK, self.port), timeout=1))
            except OSError:
                return

    def _take(self, peer: socket.socket) -> None:
        self._hang_up()
        peer.setblocking(False)
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._peer = peer

    def _hang_up(self) -> None:
        """What is half read or half written is worth nothing any more."""
        if self._peer is not None:
            self._peer.close()
            self._peer = None
        self._outgoing.clear()
        self._incoming.clear()
        self._backlog, self._fixed = 0, None

    def _write(self) -> None:
        try:
            while self._outgoing and self._peer is not None:
                count = self._peer.send(self._outgoing[0])
                self._backlog -= count
                if count == len(self._outgoing[0]):
                    self._outgoing.popleft()
                else:
                    self._outgoing[0] = self._outgoing[0][count:]
        except BlockingIOError:
            return
        except OSError:
            self._hang_up()

    def _read(self) -> None:
        """All that has come; at its end the other end has hung up, and what it said before still counts."""
        try:
            while self._peer is not None:
                data = self._peer.recv(CHUNK)
                if not data:
                    self._peer.close()
                    self._peer = None
                self._incoming += data
        except BlockingIOError:
            return
        except OSError:
            self._hang_up()

    def _next(self) -> Message | None:
        """The next whole frame; None where there is none."""
        if self._fixed is None:
            if len(self._incoming) < FIXED.size:
                return None
            self._fixed = read_fixed(bytes(self._incoming[: FIXED.size]))
            del self._incoming[: FIXED.size]
        if len(self._incoming) < self._fixed.rest_len:
            return None
        fixed, self._fixed = self._fixed, None
        rest = bytes(self._incoming[: fixed.rest_len])
        del self._incoming[: fixed.rest_len]
        return read_rest(fixed, rest)
