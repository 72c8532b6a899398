"""Messages between two processes, as frames over TCP; what is lost with a connection the engines say again."""

import socket
from collections import deque
from contextlib import suppress
from select import POLLIN, POLLOUT, poll
from threading import Lock, Thread

from engine_under_test.disaggregation.frames import FrameDamaged, FrameReader, encode
from engine_under_test.messages import Message

LOOPBACK = "127.0.0.1"
CHUNK = 1 << 20  # bytes that are read at once
CHUNKS = 8  # that are read before whoever waits for the link has its turn
MAX_BACKLOG = 1 << 30  # bytes that wait for a reader who is slow; beyond that what is sent is lost
MAX_COME = 1 << 27  # bytes that are read while nobody asks for them; what is behind them waits where it was sent
LOOK_MS = 50  # between two looks of the thread, where no socket wakes it before


class TcpLink:
    """One end of a link that never blocks and never raises: it comes up, and up again, whenever the other end is there.

    One end listens on a port, of its own choice where that is 0, and takes whoever connects last; the other end
    connects.  A frame that is damaged ends its connection, for nobody knows where the next one begins.  A thread keeps
    the bytes moving while the engine computes: what comes up, and what goes out, does not wait for its steps.
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
        self._reader = FrameReader()
        self._come: list[Message] = []  # and not asked for yet
        self._num_come = 0  # bytes that were read since somebody asked
        self._lock = Lock()  # of all of the above
        self._waker, self._woken = socket.socketpair()
        self._waker.setblocking(False)
        self._thread = Thread(target=self._keep_moving, daemon=True)
        self._thread.start()

    def send(self, message: Message) -> None:
        if not self._takes_more():
            return
        frame = memoryview(encode(message))
        with self._lock:
            if self._peer is not None:
                self._outgoing.append(frame)
                self._backlog += len(frame)
                self._write()
        if self._outgoing:
            with suppress(OSError):  # it has been woken more than often enough, or the link is closed
                self._waker.send(b"\0")

    def receive(self) -> list[Message]:
        with self._lock:
            self._come_up()
            self._move()
            come, self._come, self._num_come = self._come, [], 0
        return come

    @property
    def is_clear(self) -> bool:
        return not self._outgoing

    def close(self) -> None:
        """Hang up, and listen no more."""
        self._waker.close()
        self._thread.join()
        self._woken.close()
        self._hang_up()
        if self._listener is not None:
            self._listener.close()
            self._listener = None

    def _takes_more(self) -> bool:
        with self._lock:
            if self._peer is None:
                self._come_up()
            return self._peer is not None and self._backlog < MAX_BACKLOG

    def _keep_moving(self) -> None:
        """The thread: whenever a socket is ready for it, or something waits to be written, until the link is closed."""
        while True:
            ready = poll()
            ready.register(self._woken, POLLIN)
            with self._lock:
                if self._listener is not None:
                    ready.register(self._listener, POLLIN)
                if self._peer is not None and (wanted := self._wanted()):
                    ready.register(self._peer, wanted)
            if self._woken.fileno() in dict(ready.poll(LOOK_MS)) and not self._woken.recv(CHUNK):
                return
            with self._lock:
                if self._listener is not None:
                    self._come_up()
                self._move()

    def _wanted(self) -> int:
        return (POLLIN if self._num_come < MAX_COME else 0) | (POLLOUT if self._outgoing else 0)

    def _move(self) -> None:
        self._write()
        self._read()
        try:
            while (message := self._reader.next()) is not None:
                self._come.append(message)
        except FrameDamaged:
            self._hang_up()

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
                peer = socket.create_connection((LOOPBACK, self.port), timeout=1)
            except OSError:
                return
            if peer.getsockname() == peer.getpeername():  # nobody listens, and the system gave that port to this end
                peer.close()
            else:
                self._take(peer)

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
        self._reader, self._backlog = FrameReader(), 0

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
        """What has come, up to a bound; at its end the other end has hung up, and what it said before still counts."""
        try:
            for _ in range(CHUNKS):
                if self._peer is None or self._num_come >= MAX_COME:
                    return
                data = self._peer.recv(CHUNK)
                if not data:
                    self._peer.close()
                    self._peer = None
                self._reader.take(data)
                self._num_come += len(data)
        except BlockingIOError:
            return
        except OSError:
            self._hang_up()
