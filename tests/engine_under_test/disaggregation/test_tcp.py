"""Frames over a socket arrive in order, and the link reconnects when either end was away."""

import socket
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

import pytest
import torch

from swarden.engine_under_test.disaggregation.connection import Connection, ConnectionEnd
from swarden.engine_under_test.disaggregation.handshakes import Address, Refusal
from swarden.engine_under_test.disaggregation.tcp import LOOPBACK, TcpLink, listener_on
from swarden.engine_under_test.errors import ConfigError
from swarden.engine_under_test.messages import Close, KeepAlive, PageData
from tests.engine_under_test.disaggregation.framed import (
    CONFIG,
    SECRET,
    connected_ends,
    connecting_end,
    listening_end,
    received,
    wait_until,
)

Ends = tuple[TcpLink, TcpLink]


@pytest.fixture(params=["TCP", "Unix socket"])
def address(request, tmp_path) -> Address:
    """An address to listen on."""
    return (LOOPBACK, 0) if request.param == "TCP" else str(tmp_path / "link")


@pytest.fixture
def ends() -> Iterator[Ends]:
    with connected_ends() as both:
        yield both


def test_messages_arrive_in_order_and_unchanged(address):
    kv = torch.randn(3, 4, dtype=torch.float64)
    with connected_ends(at=address) as (listening, connecting):
        connecting.send(KeepAlive(1))
        connecting.send(PageData(1, "full", 2, 3, kv))

        first, second = received(listening, 2)
    assert first == KeepAlive(1)
    assert isinstance(second, PageData)
    assert torch.equal(second.pages, kv)


def test_message_larger_than_the_socket_buffer_arrives_while_no_engine_polls(ends):
    listening, connecting = ends
    kv = torch.arange(1_500_000, dtype=torch.int64)

    listening.send(PageData(1, "full", 0, 1, kv))

    assert wait_until(lambda: listening.is_clear)
    [message] = received(connecting, 1)
    assert isinstance(message, PageData)
    assert torch.equal(message.pages, kv)


def test_messages_go_both_ways(ends):
    listening, connecting = ends
    connecting.send(KeepAlive(1))
    there = received(listening, 1)

    listening.send(Close(1, "abort"))

    assert (there, received(connecting, 1)) == ([KeepAlive(1)], [Close(1, "abort")])


def test_message_without_a_peer_is_dropped():
    with listening_end() as (listening, address):
        listening.send(KeepAlive(1))
        with connecting_end(address) as connecting:
            assert wait_until(lambda: listening.is_connected)
            listening.send(KeepAlive(2))

            assert received(connecting, 1) == [KeepAlive(2)]


def test_listening_end_accepts_a_new_peer_after_the_first_has_gone():
    with listening_end() as (listening, address):
        with connecting_end(address) as first:
            assert wait_until(lambda: first.is_connected)
        with connecting_end(address) as second:
            assert wait_until(lambda: second.is_connected)
            second.send(KeepAlive(2))

            assert received(listening, 1) == [KeepAlive(2)]


def test_connecting_end_reconnects_to_a_new_listener():
    with listening_end() as (first, address):
        connecting = TcpLink(address, SECRET, CONFIG)
        assert wait_until(lambda: first.is_connected)
    assert wait_until(lambda: not connecting.is_connected)

    with listening_end(at=address) as (second, _):
        assert wait_until(lambda: second.is_connected and connecting.is_connected)
        connecting.send(KeepAlive(2))

        assert received(second, 1) == [KeepAlive(2)]
    connecting.close()


def test_messages_beyond_the_buffers_of_both_ends_are_dropped():
    """The engine of the peer does not poll; its end reads one buffer, and the sockets hold a few megabytes."""
    page, numbers = torch.zeros(500_000, dtype=torch.int64), list[int]()
    with connected_ends(replace(CONFIG, link_buffer_bytes=1 << 22)) as (listening, connecting):
        for number in range(40):
            listening.send(PageData(number, "full", 0, 1, page))

        def is_drained() -> bool:
            is_clear = listening.is_clear
            numbers.extend(message.transfer_id for message in connecting.receive())
            return is_clear and not connecting.receive()

        assert wait_until(is_drained)
    assert numbers == sorted(numbers)
    assert 2 <= len(numbers) < 20


def test_secret_that_is_too_short_is_refused():
    with (
        listener_on((LOOPBACK, 0)) as listener,
        pytest.raises(ConfigError, match=r"^secret: 5 bytes; want at least 16"),
    ):
        TcpLink(listener, b"short", CONFIG)


# --- heartbeats


def test_silent_peer_is_disconnected_after_the_timeout():
    """A peer that proves to have the secret, and then sends nothing, as if its process were stopped."""
    with listening_end(replace(CONFIG, link_timeout_ms=300)) as (listening, address):
        assert not isinstance(address, str)
        silent = Connection(socket.create_connection(address), ConnectionEnd.CONNECTING, SECRET, max_payload=0)
        while not listening.is_connected:
            silent.write()
            silent.shake_hands()

        assert wait_until(lambda: not listening.is_connected)
        silent.close()


def test_lag_grows_while_the_peer_does_not_poll_and_falls_when_it_does():
    """The engine of the peer is in a long pass; its link stays alive."""
    with connected_ends(replace(CONFIG, link_timeout_ms=1500)) as (listening, connecting):
        assert wait_until(lambda: listening.lag_ms > 3000)
        assert listening.is_connected

        def falls() -> bool:
            connecting.receive()
            return listening.lag_ms < 1500

        assert wait_until(falls)


def test_lag_is_zero_without_a_peer():
    with listening_end() as (listening, _):
        assert listening.lag_ms == 0


# --- rejected messages


def test_rejected_message_closes_the_connection_and_the_next_one_works(ends):
    listening, connecting = ends
    connecting.send(KeepAlive(1))
    assert received(listening, 1)

    listening.reject("it is against the rules")

    assert listening.refused == {Refusal.MESSAGE: 1}
    assert wait_until(lambda: listening.is_connected and connecting.is_connected)

    def sent_again() -> bool:
        connecting.send(KeepAlive(2))
        return bool(listening.receive())

    assert wait_until(sent_again)


def test_listener_that_is_shared_stays_open_after_an_end_is_closed():
    """In a process pair the client keeps the port so while a process is restarted."""
    with listener_on((LOOPBACK, 0)) as listener:
        TcpLink(listener.dup(), SECRET, CONFIG).close()

        with (
            socket.create_connection(listener.getsockname(), timeout=5) as waiting,
            connecting_end(listener.getsockname()) as connecting,
        ):
            with listening_again(listener) as listening:
                assert wait_until(lambda: connecting.is_connected and listening.is_connected)
            assert waiting.fileno() >= 0


def listening_again(listener: socket.socket):
    return closing(TcpLink(listener.dup(), SECRET, CONFIG))
