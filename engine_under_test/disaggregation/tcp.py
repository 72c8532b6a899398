"""The link between two processes: frames over TCP.  The engines retransmit messages that a broken connection loses."""

import socket
from collections import deque
from contextlib import suppress
from select import POLLIN, POLLOUT, poll
from threading import Lock, Thread

from engine_under_test.disaggregation.frames import FrameDamaged, FrameReader, encode
from engine_under_test.messages import Message

LOOPBACK = "127.0.0.1"
CHUNK = 1 << 20  # bytes of one read
MAX_CHUNKS = 8  # reads before another thread gets the lock
MAX_BACKLOG = 1 << 30  # bytes that wait for a slow peer; messages beyond it are dropped
MAX_UNREAD = 1 << 27  # bytes that are read ahead of `receive`; further bytes stay in the peer's socket
POLL_MS = 50  # the longest wait of the thread


class TcpLink:
    """One end of a link that never blocks and never raises, and reconnects by itself.

    One end listens on a port, which the system chooses where it is 0, and accepts the newest connection.  The other end
    connects.  A damaged frame ends its connection, because the start of the next frame is unknown.  A thread moves the
    bytes while the engine computes.
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
        self._unread: list[Message] = []
        self._num_unread = 0  # bytes that were read since the last `receive`
        self._lock = Lock()  # guards everything above
        self._waker, self._woken = socket.socketpair()
        self._waker.setblocking(False)
        self._thread = Thread(target=self._run_thread, daemon=True)
        self._thread.start()

    def send(self, message: Message) -> None:
        if not self._can_send():
            return
        frame = memoryview(encode(message))
        with self._lock:
            if self._peer is not None:
                self._outgoing.append(frame)
                self._backlog += len(frame)
                self._write()
        if self._outgoing:
            with suppress(OSError):  # the wake-up buffer is full, or the link is closed
                self._waker.send(b"\0")

    def receive(self) -> list[Message]:
        with self._lock:
            self._connect()
            self._move_bytes()
            messages, self._unread, self._num_unread = self._unread, [], 0
        return messages

    @property
    def is_clear(self) -> bool:
        return not self._outgoing

    def close(self) -> None:
        """Disconnect, and stop listening."""
        self._waker.close()
        self._thread.join()
        self._woken.close()
        self._disconnect()
        if self._listener is not None:
            self._listener.close()
            self._listener = None

    def _can_send(self) -> bool:
        with self._lock:
            if self._peer is None:
                self._connect()
            return self._peer is not None and self._backlog < MAX_BACKLOG

    def _run_thread(self) -> None:
        """Read and write whenever a socket is ready, until the link is closed."""
        while True:
            ready = poll()
            ready.register(self._woken, POLLIN)
            with self._lock:
                if self._listener is not None:
                    ready.register(self._listener, POLLIN)
                if self._peer is not None and (wanted := self._wanted_events()):
                    ready.register(self._peer, wanted)
            if self._woken.fileno() in dict(ready.poll(POLL_MS)) and not self._woken.recv(CHUNK):
                return
            with self._lock:
                if self._listener is not None:
                    self._connect()
                self._move_bytes()

    def _wanted_events(self) -> int:
        return (POLLIN if self._num_unread < MAX_UNREAD else 0) | (POLLOUT if self._outgoing else 0)

    def _move_bytes(self) -> None:
        self._write()
        self._read()
        try:
            while (message := self._reader.next()) is not None:
                self._unread.append(message)
        except FrameDamaged:
            self._disconnect()

    def _connect(self) -> None:
        """Accept the newest connection, or connect where there is none."""
        if self._listener is not None:
            try:
                while True:
                    peer, _ = self._listener.accept()
                    self._replace_peer(peer)
            except OSError:  # no connection waits, or its peer has closed it again
                return
        if self._peer is None:
            try:
                peer = socket.create_connection((LOOPBACK, self.port), timeout=1)
            except OSError:
                return
            if peer.getsockname() == peer.getpeername():  # a TCP self-connect: the system chose the same port here
                peer.close()
            else:
                self._replace_peer(peer)

    def _replace_peer(self, peer: socket.socket) -> None:
        self._disconnect()
        peer.setblocking(False)
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._peer = peer

    def _disconnect(self) -> None:
        """Frames that are partly read or partly written are dropped."""
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
            self._disconnect()

    def _read(self) -> None:
        """Read the bytes that have arrived, up to a limit; frames from before a disconnect are kept."""
        try:
            for _ in range(MAX_CHUNKS):
                if self._peer is None or self._num_unread >= MAX_UNREAD:
                    return
                data = self._peer.recv(CHUNK)
                if not data:
                    self._peer.close()
                    self._peer = None
                self._reader.feed(data)
                self._num_unread += len(data)
        except BlockingIOError:
            return
        except OSError:
            self._disconnect()
