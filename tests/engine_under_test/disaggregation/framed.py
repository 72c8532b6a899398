"""Frames as whole bytes, and two ends of a link that are connected over a socket."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event
from time import monotonic

from swarden.engine_under_test.config import EngineConfig
from swarden.engine_under_test.disaggregation.frames import FrameReader, Seal, encode
from swarden.engine_under_test.disaggregation.handshakes import Address
from swarden.engine_under_test.disaggregation.tcp import LOOPBACK, TcpLink, listener_on
from swarden.engine_under_test.messages import Message

KEY, SECRET = b"key of a direction", b"0123456789abcdef"
MAX_PAYLOAD = 1 << 20
CONFIG = EngineConfig(link_retry_ms=50, link_timeout_ms=20_000)
PATIENCE_S = 600.0  # for a condition that never holds; no test judges by it


def frame_of(message: Message, seal: Seal | None = None) -> bytes:
    """The frame of a message; the first one of its direction, unless its seal is given."""
    return b"".join(encode(message, seal or Seal(KEY)))


def messages_of(data: bytes | bytearray) -> list[Message]:
    """The messages of the first frames of a direction.  Raises FrameDamaged."""
    return FrameReader(KEY, max_payload=MAX_PAYLOAD).feed(data)


def wait_until(is_so: Callable[[], bool]) -> bool:
    """Wait for a condition; False where it does not hold in time."""
    until = monotonic() + PATIENCE_S
    while not (reached := is_so()) and monotonic() < until:
        Event().wait(0.002)
    return reached


@contextmanager
def listening_end(config: EngineConfig = CONFIG, *, at: Address = (LOOPBACK, 0)) -> Iterator[tuple[TcpLink, Address]]:
    """A listening end, and its address."""
    listener = listener_on(at)
    address: Address = listener.getsockname()
    end = TcpLink(listener, SECRET, config)
    yield end, address
    end.close()


@contextmanager
def connecting_end(address: Address, config: EngineConfig = CONFIG, *, secret: bytes = SECRET) -> Iterator[TcpLink]:
    end = TcpLink(address, secret, config)
    yield end
    end.close()


@contextmanager
def connected_ends(config: EngineConfig = CONFIG, *, at: Address = (LOOPBACK, 0)) -> Iterator[tuple[TcpLink, TcpLink]]:
    """The listening end and the connecting end, connected."""
    with listening_end(config, at=at) as (listening, address), connecting_end(address, config) as connecting:
        assert wait_until(lambda: listening.is_connected and connecting.is_connected)
        yield listening, connecting


def received(link: TcpLink, count: int) -> list[Message]:
    """Poll an end until `count` messages have arrived."""
    found: list[Message] = []

    def has_enough() -> bool:
        found.extend(link.receive())
        return len(found) >= count

    wait_until(has_enough)
    return found
