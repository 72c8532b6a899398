"""The link between two processes: sealed frames over TCP or a Unix socket; a broken connection loses messages."""

import os
import socket
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from logging import getLogger
from select import POLLIN, POLLOUT, poll
from threading import Lock, Thread
from typing import NamedTuple

from swarden.engine_under_test.clock import MonotonicClock
from swarden.engine_under_test.config import EngineConfig
from swarden.engine_under_test.disaggregation.connection import Connection
from swarden.engine_under_test.disaggregation.frames import FrameDamaged, Heartbeat
from swarden.engine_under_test.disaggregation.handshakes import Address, Handshakes, Refusal
from swarden.engine_under_test.disaggregation.silence import Silence, heartbeat_ms
from swarden.engine_under_test.messages import Message

LOOPBACK = "127.0.0.1"
POLL_MS = 50  # the longest wait of the thread
SECRET_LEN = 32
CLOCK = MonotonicClock()
LOG = getLogger("swarden.link")


@dataclass(slots=True)
class Peer:
    """A connected peer.  `told_ms` is when its last heartbeat arrived, `beat_ms` when it was last sent a heartbeat."""

    connection: Connection
    silence: Silence
    told_ms: int
    beat_ms: int

    def lag_ms(self, now_ms: int) -> int:
        return self.connection.heartbeat.lag_ms + now_ms - self.told_ms


class Polls(NamedTuple):
    """The last two times at which the engine received messages; it has answered all that arrived before `before_ms`."""

    before_ms: int
    last_ms: int


class TcpLink:
    """One end of a link that never blocks and never raises, and reconnects by itself.

    One end has a listening socket, the other end its address, and both have the same `secret` of random bytes.  A
    connection is not replaced while it is alive.  It ends with a damaged frame, with a message against the rules, or
    when no whole frame has arrived for `link_timeout_ms`.  A thread moves the bytes, and sends heartbeats, while the
    engine computes.  Frames are authentic, but they are not encrypted.
    """

    def __init__(self, end: socket.socket | Address, secret: bytes, config: EngineConfig) -> None:
        self._handshakes = Handshakes(end, secret, config)
        self._config = config
        self._peer: Peer | None = None
        self._unread: list[Message] = []
        self._num_unread = 0  # bytes that were read since the last `receive`
        self._polls = Polls(CLOCK.now_ms(), CLOCK.now_ms())
        self._lock = Lock()  # guards everything above
        self._waker, self._woken = socket.socketpair()
        self._waker.setblocking(False)
        self._thread = Thread(target=self._run_thread, daemon=True)
        self._thread.start()

    def send(self, message: Message) -> None:
        with self._lock:
            if self._peer is None or self._peer.connection.backlog >= self._config.link_buffer_bytes:
                return
            self._send(self._peer, message)
        if not self.is_clear:
            with suppress(OSError):  # the wake-up buffer is full, or the link is closed
                self._waker.send(b"\0")

    def receive(self) -> list[Message]:
        with self._lock:
            self._move_bytes()
            messages, self._unread, self._num_unread = self._unread, [], 0
            self._polls = Polls(self._polls.last_ms, CLOCK.now_ms())
        return messages

    def reject(self, detail: str) -> None:
        LOG.warning("the connection is closed: %s", detail)
        with self._lock:
            self._disconnect(Refusal.MESSAGE)
            self._unread.clear()

    @property
    def is_clear(self) -> bool:
        peer = self._peer
        return peer is None or not peer.connection.has_outgoing

    @property
    def lag_ms(self) -> int:
        peer = self._peer
        return 0 if peer is None else peer.lag_ms(CLOCK.now_ms())

    @property
    def is_connected(self) -> bool:
        """Is there a peer that has proved to have the secret, and is alive?"""
        return self._peer is not None

    @property
    def refused(self) -> Counter[Refusal]:
        """How many connections this end has closed, by the reason."""
        with self._lock:
            return Counter(self._handshakes.refused)

    def close(self) -> None:
        """Disconnect, and stop listening."""
        self._waker.close()
        self._thread.join()
        self._woken.close()
        self._disconnect()
        self._handshakes.close()

    def _run_thread(self) -> None:
        """Read and write whenever a socket is ready, until the link is closed."""
        while True:
            with self._lock:
                self._move_bytes()
                self._tend_peer(CLOCK.now_ms())
                ready = self._sockets()
            if self._woken.fileno() in dict(ready.poll(POLL_MS)) and not self._woken.recv(1 << 12):
                return

    def _tend_peer(self, now_ms: int) -> None:
        """Find a peer; send it heartbeats that are due; end the connection when it has been silent for too long."""
        interval_ms = heartbeat_ms(self._config.link_timeout_ms)
        if self._peer is not None and self._peer.silence.look(now_ms) >= self._config.link_timeout_ms:
            self._disconnect()
        connection = self._handshakes.established(now_ms, is_occupied=self._peer is not None)
        if connection is not None:
            self._peer = Peer(connection, Silence(interval_ms, now_ms), told_ms=now_ms, beat_ms=now_ms - interval_ms)
        if self._peer is not None and self.is_clear and now_ms - self._peer.beat_ms >= interval_ms:
            self._peer.beat_ms = now_ms
            self._send(self._peer, Heartbeat(now_ms - self._polls.before_ms))

    def _send(self, peer: Peer, message: Message | Heartbeat) -> None:
        try:
            peer.connection.send(message)
        except OSError:
            self._disconnect()

    def _sockets(self) -> poll:
        """The sockets that the thread waits for."""
        ready = poll()
        ready.register(self._woken, POLLIN)
        if self._handshakes.listener is not None:
            ready.register(self._handshakes.listener, POLLIN)
        for connection in self._handshakes.connections:
            ready.register(connection.stream, POLLIN | (POLLOUT if connection.has_outgoing else 0))
        if self._peer is not None:
            wanted = (POLLIN if self._can_read else 0) | (POLLOUT if self._peer.connection.has_outgoing else 0)
            if wanted:
                ready.register(self._peer.connection.stream, wanted)
        return ready

    @property
    def _can_read(self) -> bool:
        return self._num_unread < self._config.link_buffer_bytes

    def _move_bytes(self) -> None:
        """Write what waits, and read what has arrived; messages from before a disconnect are kept."""
        if self._peer is None:
            return
        peer, num_messages = self._peer, len(self._unread)
        connection, heartbeat, num_read = peer.connection, peer.connection.heartbeat, peer.connection.num_read
        try:
            connection.write()
            if self._can_read:
                connection.read(self._unread)
            else:
                peer.silence.heard()  # it may speak, and this end does not listen
        except OSError:
            self._disconnect()
        except FrameDamaged:
            self._disconnect(Refusal.FRAME)
        self._num_unread += connection.num_read - num_read
        if connection.heartbeat is not heartbeat:
            peer.told_ms = CLOCK.now_ms()
        if connection.heartbeat is not heartbeat or len(self._unread) > num_messages:
            peer.silence.heard()

    def _disconnect(self, refusal: Refusal | None = None) -> None:
        """Close the connection; frames that are partly read or partly written are dropped."""
        if self._peer is None:
            return
        self._peer.connection.close()
        self._peer = None
        if refusal is not None:
            self._handshakes.refused[refusal] += 1


def listener_on(address: Address) -> socket.socket:
    """A listening socket; with port 0 the system chooses the port.  Raises OSError."""
    if isinstance(address, str):
        return socket.create_server(address, family=socket.AF_UNIX)
    return socket.create_server(address, family=socket.AF_INET6 if ":" in address[0] else socket.AF_INET)


def new_secret() -> bytes:
    """A secret for both ends of a link."""
    return os.urandom(SECRET_LEN)
