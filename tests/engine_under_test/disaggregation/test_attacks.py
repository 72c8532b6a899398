"""Strangers cannot read, change or end transfers: over forty attacks on a link, each while requests run."""

import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from threading import Thread
from time import monotonic

import pytest

from swarden.engine_under_test.config import EngineConfig
from swarden.engine_under_test.disaggregation.connection import ConnectionEnd
from swarden.engine_under_test.disaggregation.frames import FIXED_LEN, LENGTHS
from swarden.engine_under_test.disaggregation.handshakes import Refusal
from swarden.engine_under_test.disaggregation.tcp import LOOPBACK, TcpLink, listener_on
from swarden.engine_under_test.engine import create_engine
from swarden.engine_under_test.pair import Pair, create_pair
from swarden.engine_under_test.ports import Ports
from swarden.engine_under_test.sampling import SamplingParams
from swarden.fakes.forward import FakeForward
from swarden.harness.kit.tags import TagModel
from tests.engine_under_test.builders import HYBRID
from tests.engine_under_test.disaggregation.framed import PATIENCE_S, SECRET, wait_until
from tests.engine_under_test.disaggregation.sides import PROMPTS
from tests.engine_under_test.disaggregation.strangers import (
    MAX_BEFORE_PROOF,
    Proxy,
    Talk,
    claims,
    drips,
    echoes,
    forges,
    hangs_up,
    hello,
    says,
)

CONFIG = replace(HYBRID, link_retry_ms=30, link_timeout_ms=10_000)
SAMPLING = SamplingParams(8)
OLD_CLOSE = b"swk1" + bytes.fromhex("00000035 0000000000000000 00000000") + b'{"kind": "Close", "transfer_id": 1}'
TLS_HELLO = bytes.fromhex("1603010200010001fc0303") + bytes(64)
Address = tuple[str, int]


def talks(place: ConnectionEnd) -> dict[str, Talk]:
    """The attacks of a stranger that passes for the end with this place."""
    return {
        "nothing": says(),
        "hangs up": hangs_up,
        "zeros": says(bytes(1 << 16)),
        "HTTP": says(b"GET / HTTP/1.1\r\n\r\n"),
        "TLS": says(TLS_HELLO),
        "the old protocol": says(OLD_CLOSE * 8),
        "only a hello": says(hello(place)),
        "a hello, byte by byte": drips(place),
        "the hello of the other end": says(hello(place.other)),
        "echo": echoes,
        "a hello and zeros": says(hello(place), bytes(1 << 16)),
        "forged frames": forges(place),
        "a frame of 4 GiB": claims(place, 1 << 32),
        "a frame at the limit": claims(place, HYBRID.link_frame_bytes),
    }


class Linked:
    """A pair whose link goes over a socket, by way of a proxy if `via` makes one."""

    def __init__(self, via: Callable[[Address], Proxy] | None = None, config: EngineConfig = CONFIG) -> None:
        listener = listener_on((LOOPBACK, 0))
        self.address: Address = listener.getsockname()
        self.proxy = via(self.address) if via else None
        self.listening = TcpLink(listener, SECRET, config)
        self.connecting = TcpLink(self.proxy.address if self.proxy else self.address, SECRET, config)
        self.pair = pair_over(self.listening, self.connecting, config)

    def close(self) -> None:
        self.connecting.close()
        self.listening.close()
        if self.proxy is not None:
            self.proxy.close()

    def refused(self) -> int:
        return self.listening.refused.total() + self.connecting.refused.total()


def pair_over(listening: TcpLink, connecting: TcpLink, config: EngineConfig = CONFIG) -> Pair:
    forwards = [FakeForward(TagModel()) for _ in range(2)]
    return create_pair(config, ports=(Ports(forwards[0], link=listening), Ports(forwards[1], link=connecting)))


def outputs(pair: Pair, meanwhile: Callable[[], None] = lambda: None) -> list[list[int]]:
    """Serve the prompts, with a call after the first steps; the output of each."""
    tokens: dict[int, list[int]] = {pair.submit(prompt, SAMPLING): [] for prompt in PROMPTS * 2}
    until, num_steps = monotonic() + PATIENCE_S, 0
    while pair.has_work and monotonic() < until:
        for output in pair.step():
            tokens[output.request_id] += output.token_ids
        num_steps += 1
        if num_steps == 5:
            meanwhile()
    return list(tokens.values())


@pytest.fixture(scope="module")
def expected() -> list[list[int]]:
    engine = create_engine(HYBRID, ports=Ports(FakeForward(TagModel())))
    return [generation.token_ids for generation in engine.generate(PROMPTS * 2, SAMPLING)]


@pytest.fixture
def linked() -> Iterator[Linked]:
    with closing(Linked()) as one:
        assert wait_until(lambda: one.listening.is_connected and one.connecting.is_connected)
        yield one


# --- a stranger connects


@pytest.mark.parametrize("name", talks(ConnectionEnd.CONNECTING))
def test_stranger_who_connects_learns_nothing_and_harms_no_request(linked, expected, name):
    num_read = list[int]()

    def attack() -> None:
        with socket.create_connection(linked.address) as stream:
            num_read.append(talks(ConnectionEnd.CONNECTING)[name](stream))

    stranger = Thread(target=attack)

    assert outputs(linked.pair, stranger.start) == expected
    stranger.join()
    assert max(num_read) <= MAX_BEFORE_PROOF
    assert linked.listening.is_connected


def test_many_strangers_at_once_harm_no_request(linked, expected):
    with ExitStack() as strangers:

        def attack() -> None:
            for _ in range(200):
                strangers.enter_context(socket.create_connection(linked.address))

        assert outputs(linked.pair, attack) == expected


def test_strangers_in_their_handshake_do_not_keep_the_peer_out():
    with listener_on((LOOPBACK, 0)) as listener, ExitStack() as strangers:
        for _ in range(64):
            strangers.enter_context(socket.create_connection(listener.getsockname()))
        with (
            closing(TcpLink(listener.dup(), SECRET, CONFIG)) as listening,
            closing(TcpLink(listener.getsockname(), SECRET, CONFIG)) as connecting,
        ):
            assert wait_until(lambda: listening.is_connected and connecting.is_connected)
            assert listening.refused[Refusal.HANDSHAKE] >= 40


def test_established_link_is_not_taken_over_by_a_second_peer_with_the_secret(linked, expected):
    with ExitStack() as seconds:

        def attack() -> None:
            second = seconds.enter_context(closing(TcpLink(linked.address, SECRET, CONFIG)))
            assert wait_until(lambda: linked.listening.refused[Refusal.SECOND] > 0)
            assert second.receive() == []

        assert outputs(linked.pair, attack) == expected


# --- a stranger listens, where the connecting end expects its peer


@pytest.mark.parametrize("name", talks(ConnectionEnd.LISTENING))
def test_stranger_who_listens_learns_nothing_and_harms_no_request(expected, name):
    """The port goes back to the peer after ten connections of the stranger."""
    talk, num_read = talks(ConnectionEnd.LISTENING)[name], list[int]()
    with listener_on((LOOPBACK, 0)) as listener, closing(TcpLink(listener.getsockname(), SECRET, CONFIG)) as connecting:
        for _ in range(2):
            stream, _ = listener.accept()
            with stream:
                num_read.append(talk(stream))
            assert not connecting.is_connected

        with closing(TcpLink(listener.dup(), SECRET, CONFIG)) as listening:
            assert outputs(pair_over(listening, connecting)) == expected
    assert max(num_read) <= MAX_BEFORE_PROOF


# --- a stranger in the middle


def at(number: int, change: Callable[[bytes], bytes | None]) -> Callable[[str, int, bytes], bytes | None]:
    """Change one frame of both directions."""
    return lambda _sender, this, frame: change(frame) if this == number else frame


def flipped(place: int) -> Callable[[bytes], bytes]:
    return lambda frame: (
        frame[:place] + bytes([frame[place] ^ 1]) + frame[place + 1 :]
        if place >= 0
        else (frame[:place] + bytes([frame[place] ^ 1]) + frame[len(frame) + place + 1 :])
    )


def swapped() -> Callable[[str, int, bytes], bytes]:
    """Exchange two neighbours of each direction."""
    kept: dict[str, bytes] = {}

    def tamper(sender: str, number: int, frame: bytes) -> bytes:
        if number == 4:
            kept[sender] = frame
            return b""
        return frame + kept.pop(sender) if number == 5 else frame

    return tamper


def replayed() -> Callable[[str, int, bytes], bytes]:
    """Send the first two frames of each direction a second time."""
    first: dict[str, bytes] = {"connecting": b"", "listening": b""}

    def tamper(sender: str, number: int, frame: bytes) -> bytes:
        if number < 2:
            first[sender] += frame
        return frame + first[sender] if number == 5 else frame

    return tamper


def reflected() -> Callable[[str, int, bytes], bytes]:
    """Send each end its own frames instead of those of its peer."""
    own: dict[str, bytes] = {"connecting": b"", "listening": b""}
    other = {"connecting": "listening", "listening": "connecting"}

    def tamper(sender: str, number: int, frame: bytes) -> bytes:
        own[sender] = frame
        return own[other[sender]] or frame if number == 5 else frame

    return tamper


TAMPERS: dict[str, Callable[[], Callable[[str, int, bytes], bytes | None]]] = {
    "a byte of the first frame is changed": lambda: at(0, flipped(-1)),
    "a byte of a header length is changed": lambda: at(5, flipped(3)),
    "a byte of a payload length is changed": lambda: at(5, flipped(LENGTHS.size - 1)),
    "a byte of a seal is changed": lambda: at(5, flipped(LENGTHS.size + 2)),
    "a byte of a header is changed": lambda: at(5, flipped(FIXED_LEN + 3)),
    "the last byte is changed": lambda: at(5, flipped(-1)),
    "a frame is left out": lambda: at(4, lambda _: b""),
    "the first frame is left out": lambda: at(0, lambda _: b""),
    "a frame is repeated": lambda: at(5, lambda frame: frame * 2),
    "two frames are exchanged": swapped,
    "the first frames are repeated later": replayed,
    "the frames of an end are sent back": reflected,
    "a frame is truncated": lambda: at(5, lambda frame: frame[:-1]),
    "a frame is truncated, and the connection is cut": lambda: at(5, lambda _: None),
    "a frame claims 4 GiB": lambda: at(5, lambda frame: LENGTHS.pack(40, 1 << 32) + frame[LENGTHS.size :]),
    "zeros are inserted": lambda: at(5, lambda frame: bytes(60) + frame),
}


@pytest.mark.parametrize("name", TAMPERS)
def test_tampering_closes_the_connection_and_harms_no_request(expected, name):
    with closing(Linked(lambda address: Proxy(address, TAMPERS[name]()))) as linked:
        assert outputs(linked.pair) == expected

        assert linked.proxy is not None
        assert linked.proxy.num_connections > 1


def test_recorded_connection_cannot_be_replayed_to_either_end(expected):
    """Each end gets the whole stream that its peer sent in an earlier connection, the hello included."""
    with closing(Linked(lambda address: Proxy(address, lambda _sender, _number, frame: frame))) as linked:
        assert outputs(linked.pair) == expected
        assert linked.proxy is not None
        recorded = linked.proxy.recorded
        linked.connecting.close()
        assert wait_until(lambda: not linked.listening.is_connected)
        linked.listening.receive()

        with socket.create_connection(linked.address) as stream:
            num_read = says(bytes(recorded["connecting"]))(stream)

        assert (linked.listening.is_connected, linked.listening.receive()) == (False, [])
        assert num_read <= MAX_BEFORE_PROOF
    with listener_on((LOOPBACK, 0)) as listener, closing(TcpLink(listener.getsockname(), SECRET, CONFIG)) as connecting:
        stream, _ = listener.accept()
        with stream:
            num_read = says(bytes(recorded["listening"]))(stream)

        assert (connecting.is_connected, connecting.receive()) == (False, [])
        assert num_read <= MAX_BEFORE_PROOF


def test_connection_that_is_only_watched_stays_the_same(expected):
    """Heartbeats keep it alive for more than two timeouts."""
    config = replace(CONFIG, link_timeout_ms=1500)
    with closing(Linked(lambda address: Proxy(address, lambda _sender, _number, frame: frame), config)) as linked:
        assert outputs(linked.pair) == expected
        assert linked.proxy is not None
        until = monotonic() + 4

        assert wait_until(lambda: monotonic() > until)

        assert (linked.proxy.num_connections, linked.refused()) == (1, 0)
