"""Frames over TCP: what is sent comes, and the link comes up again when either end was away."""

import socket

import pytest
import torch

from engine_under_test.disaggregation.frames import encode
from engine_under_test.disaggregation.tcp import LOOPBACK, TcpLink
from engine_under_test.messages import Alive, Message, Over, Parcel

MOST_LOOKS = 10_000


@pytest.fixture
def ends():
    listening = TcpLink(0, listens=True)
    connecting = TcpLink(listening.port, listens=False)
    yield listening, connecting
    connecting.close()
    listening.close()


def come(link: TcpLink, other: TcpLink, count: int) -> list[Message]:
    """What has come when so many messages have, while the other end goes on writing."""
    found: list[Message] = []
    for _ in range(MOST_LOOKS):
        found += link.receive()
        other.receive()
        if len(found) >= count:
            break
    return found


def test_messages_come_in_order_and_to_the_bit(ends):
    listening, connecting = ends
    kv = torch.randn(3, 4, dtype=torch.float64)

    connecting.send(Alive(1))
    connecting.send(Parcel(1, "full", 2, 3, kv))

    first, second = come(listening, connecting, 2)
    assert first == Alive(1)
    assert isinstance(second, Parcel)
    assert torch.equal(second.pages, kv)


def test_more_than_the_system_takes_at_once_comes_whole(ends):
    listening, connecting = ends
    kv = torch.arange(8_000_000, dtype=torch.int64)

    connecting.send(Parcel(1, "full", 0, 1, kv))

    [parcel] = come(listening, connecting, 1)
    assert isinstance(parcel, Parcel)
    assert torch.equal(parcel.pages, kv)


def test_both_ends_say_something(ends):
    listening, connecting = ends
    connecting.send(Alive(1))
    come(listening, connecting, 1)

    listening.send(Over(1, "so be it"))

    assert come(connecting, listening, 1) == [Over(1, "so be it")]


def test_what_is_sent_to_nobody_is_lost_and_raises_nothing():
    listening = TcpLink(0, listens=True)

    listening.send(Alive(1))
    assert listening.receive() == []
    connecting = TcpLink(listening.port, listens=False)
    connecting.send(Alive(2))

    assert come(listening, connecting, 1) == [Alive(2)]
    connecting.close()
    listening.close()


def test_the_link_comes_up_again_when_the_end_that_connects_was_away(ends):
    listening, connecting = ends
    connecting.send(Alive(1))
    come(listening, connecting, 1)
    connecting.close()

    again = TcpLink(listening.port, listens=False)
    again.send(Alive(2))

    assert come(listening, again, 1) == [Alive(2)]
    again.close()


def test_the_link_comes_up_again_when_the_end_that_listens_was_away(ends):
    listening, connecting = ends
    connecting.send(Alive(1))
    come(listening, connecting, 1)
    listening.close()
    assert come(connecting, connecting, 1) == []

    again = TcpLink(connecting.port, listens=True)
    connecting.send(Alive(2))

    assert come(again, connecting, 1) == [Alive(2)]
    again.close()


def test_bytes_move_while_the_end_that_sends_is_asked_for_nothing(ends):
    """More than the system holds on the way, as when the engine computes."""
    listening, _ = ends
    parcel = Parcel(1, "full", 0, 1, torch.zeros(8_000_000, dtype=torch.int64))
    with socket.create_connection((LOOPBACK, listening.port), timeout=10) as reader:
        listening.send(parcel)

        num_bytes = len(encode(parcel))
        while num_bytes > 0:
            num_bytes -= len(reader.recv(1 << 20))

    assert num_bytes == 0


def test_an_end_that_the_system_connects_with_itself_is_not_linked(monkeypatch):
    """As it may where nobody listens, and the port is one that it gives to those who connect."""
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
    connecting.send(Alive(1))

    assert ([one.fileno() for one in mirrors], connecting.is_clear) == ([-1], True)
    connecting.close()


def test_damage_ends_the_connection_and_the_next_one_begins_anew(ends):
    listening, connecting = ends
    frame = bytearray(encode(Alive(1)))
    frame[-1] ^= 1
    with socket.create_connection((LOOPBACK, listening.port)) as stranger:
        stranger.sendall(bytes(frame) + encode(Alive(2)))
        assert come(listening, listening, 1) == []

        connecting.send(Alive(3))

        assert come(listening, connecting, 1) == [Alive(3)]
