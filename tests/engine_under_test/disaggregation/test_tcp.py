"""Frames over TCP arrive in order, and the link reconnects when either end was away."""

import socket

import pytest
import torch

from engine_under_test.disaggregation.frames import encode
from engine_under_test.disaggregation.tcp import LOOPBACK, TcpLink
from engine_under_test.messages import Close, KeepAlive, Message, PageData

MAX_POLLS = 10_000


@pytest.fixture
def ends():
    listening = TcpLink(0, listens=True)
    connecting = TcpLink(listening.port, listens=False)
    yield listening, connecting
    connecting.close()
    listening.close()


def received(link: TcpLink, other: TcpLink, count: int) -> list[Message]:
    """Poll both ends until `count` messages have arrived at `link`."""
    found: list[Message] = []
    for _ in range(MAX_POLLS):
        found += link.receive()
        other.receive()
        if len(found) >= count:
            break
    return found


def test_messages_arrive_in_order_and_unchanged(ends):
    listening, connecting = ends
    kv = torch.randn(3, 4, dtype=torch.float64)

    connecting.send(KeepAlive(1))
    connecting.send(PageData(1, "full", 2, 3, kv))

    first, second = received(listening, connecting, 2)
    assert first == KeepAlive(1)
    assert isinstance(second, PageData)
    assert torch.equal(second.pages, kv)


def test_message_larger_than_the_socket_buffer_arrives_whole(ends):
    listening, connecting = ends
    kv = torch.arange(8_000_000, dtype=torch.int64)

    connecting.send(PageData(1, "full", 0, 1, kv))

    [message] = received(listening, connecting, 1)
    assert isinstance(message, PageData)
    assert torch.equal(message.pages, kv)


def test_messages_go_both_ways(ends):
    listening, connecting = ends
    connecting.send(KeepAlive(1))
    received(listening, connecting, 1)

    listening.send(Close(1, "abort"))

    assert received(connecting, listening, 1) == [Close(1, "abort")]


def test_message_without_a_peer_is_dropped():
    listening = TcpLink(0, listens=True)

    listening.send(KeepAlive(1))
    assert listening.receive() == []
    connecting = TcpLink(listening.port, listens=False)
    connecting.send(KeepAlive(2))

    assert received(listening, connecting, 1) == [KeepAlive(2)]
    connecting.close()
    listening.close()


def test_listening_end_accepts_a_new_connection(ends):
    listening, connecting = ends
    connecting.send(KeepAlive(1))
    received(listening, connecting, 1)
    connecting.close()

    again = TcpLink(listening.port, listens=False)
    again.send(KeepAlive(2))

    assert received(listening, again, 1) == [KeepAlive(2)]
    again.close()


def test_connecting_end_reconnects_to_a_new_listener(ends):
    listening, connecting = ends
    connecting.send(KeepAlive(1))
    received(listening, connecting, 1)
    listening.close()
    assert received(connecting, connecting, 1) == []

    again = TcpLink(connecting.port, listens=True)
    connecting.send(KeepAlive(2))

    assert received(again, connecting, 1) == [KeepAlive(2)]
    again.close()


def test_bytes_are_sent_while_the_engine_does_not_poll(ends):
    """More bytes than the socket buffers hold."""
    listening, _ = ends
    message = PageData(1, "full", 0, 1, torch.zeros(8_000_000, dtype=torch.int64))
    with socket.create_connection((LOOPBACK, listening.port), timeout=10) as reader:
        listening.send(message)

        num_bytes = len(encode(message))
        while num_bytes > 0:
            num_bytes -= len(reader.recv(1 << 20))

    assert num_bytes == 0


def test_self_connection_is_closed(monkeypatch):
    """TCP connects a socket with itself where no end listens and the system chooses the same port."""
    with socket.create_server((LOOPBACK, 0)) as server:
        port = server.getsockname()[1]
    mirrors = []

    def mirror(address, **_):
        mirrors.append(socket.socket())
        mirrors[-1].bind(address)
        mirrors[-1].connect(address)
        return mirrors[-1]

    monkeypatch.setattr(socket, "create_connection", mirror)
    connecting = TcpLink(port, listens=False)
    connecting.send(KeepAlive(1))

    assert ([one.fileno() for one in mirrors], connecting.is_clear) == ([-1], True)
    connecting.close()


def test_damaged_frame_ends_the_connection_and_the_next_one_works(ends):
    listening, connecting = ends
    frame = bytearray(encode(KeepAlive(1)))
    frame[-1] ^= 1
    with socket.create_connection((LOOPBACK, listening.port)) as stranger:
        stranger.sendall(bytes(frame) + encode(KeepAlive(2)))
        assert received(listening, listening, 1) == []

        connecting.send(KeepAlive(3))

        assert received(listening, connecting, 1) == [KeepAlive(3)]
