"""New connections of a link, until one of them has passed the handshake."""

import socket
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from swarden.engine_under_test.config import EngineConfig
from swarden.engine_under_test.disaggregation.connection import Connection, ConnectionEnd
from swarden.engine_under_test.disaggregation.frames import FrameDamaged
from swarden.engine_under_test.disaggregation.silence import heartbeat_ms
from swarden.engine_under_test.errors import ConfigError

Address = tuple[str, int] | str  # host and port, or the path of a Unix socket
MIN_SECRET = 16  # bytes
MAX_PENDING = 16  # connections in their handshake; the oldest gives way


class Refusal(StrEnum):
    """Why a connection was closed by this end."""

    HANDSHAKE = "handshake"  # the peer does not have the secret, or did not show it in time
    SECOND = "second"  # the peer has the secret, but another connection is alive
    FRAME = "frame"  # a frame was changed, repeated, left out, moved or too large
    MESSAGE = "message"  # a message was against the rules of its transfer


@dataclass(slots=True)
class Pending:
    """A connection in its handshake, which began at `since_ms`."""

    connection: Connection
    since_ms: int


class Handshakes:
    """Accepts connections on a listening socket, or connects to an address; `refused` counts those that it closed."""

    def __init__(self, end: socket.socket | Address, secret: bytes, config: EngineConfig) -> None:
        if len(secret) < MIN_SECRET:
            raise ConfigError(
                f"secret: {len(secret)} bytes; want at least {MIN_SECRET} random ones, equal on both ends"
            )
        self.refused = Counter[Refusal]()
        self._end = end
        self._secret = secret
        self._config = config
        self._pending: list[Pending] = []
        if isinstance(end, socket.socket):
            end.setblocking(False)

    @property
    def listener(self) -> socket.socket | None:
        return self._end if isinstance(self._end, socket.socket) else None

    @property
    def connections(self) -> Sequence[Connection]:
        """The connections that are in their handshake."""
        return [pending.connection for pending in self._pending]

    def established(self, now_ms: int, *, is_occupied: bool) -> Connection | None:
        """A connection that has passed the handshake, unless a live connection occupies the place (`is_occupied`)."""
        if self.listener is not None:
            self._accept(self.listener, now_ms)
        elif not (is_occupied or self._pending):
            self._connect(now_ms)
        for pending in list(self._pending):
            if self._advance(pending, now_ms):
                self._pending.remove(pending)
                if not is_occupied:
                    return pending.connection
                self._refuse(pending.connection, Refusal.SECOND)
        return None

    def close(self) -> None:
        for connection in self.connections:
            connection.close()
        if self.listener is not None:
            self.listener.close()

    def _accept(self, listener: socket.socket, now_ms: int) -> None:
        for _ in range(MAX_PENDING):
            try:
                stream, _address = listener.accept()
                self._add(stream, ConnectionEnd.LISTENING, now_ms)
            except OSError:  # no connection waits, its peer has closed it again, or too many files are open
                return

    def _connect(self, now_ms: int) -> None:
        assert not isinstance(self._end, socket.socket), "this end listens"
        families = {True: socket.AF_INET6, False: socket.AF_INET}
        family = socket.AF_UNIX if isinstance(self._end, str) else families[":" in self._end[0]]
        stream = socket.socket(family)
        stream.setblocking(False)
        try:
            stream.connect(self._end)
        except BlockingIOError:
            pass  # the handshake finds out whether it succeeds
        except OSError:  # nothing listens there
            stream.close()
            return
        self._add(stream, ConnectionEnd.CONNECTING, now_ms)

    def _add(self, stream: socket.socket, place: ConnectionEnd, now_ms: int) -> None:
        connection = Connection(stream, place, self._secret, max_payload=self._config.link_frame_bytes)
        self._pending.append(Pending(connection, now_ms))
        if len(self._pending) > MAX_PENDING:
            self._refuse(self._pending.pop(0).connection, Refusal.HANDSHAKE)

    def _advance(self, pending: Pending, now_ms: int) -> bool:
        """Has the connection passed the handshake?  A connection that has failed is closed and forgotten."""
        connection = pending.connection
        is_late = now_ms - pending.since_ms >= heartbeat_ms(self._config.link_timeout_ms)
        try:
            connection.write()
            connection.shake_hands()
            if is_late and not connection.is_established:
                raise FrameDamaged("the peer has not shown in time that it has the secret")
        except FrameDamaged:
            self._pending.remove(pending)
            self._refuse(connection, Refusal.HANDSHAKE)
        except OSError:
            self._pending.remove(pending)
            connection.close()
        return connection.is_established

    def _refuse(self, connection: Connection, refusal: Refusal) -> None:
        connection.close()
        self.refused[refusal] += 1
