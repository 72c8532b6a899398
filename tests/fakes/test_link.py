"""The unsteady link drops, damages, duplicates, delays and reorders messages until it is healed."""

from collections import Counter

import pytest

from swarden.engine_under_test.messages import Close, KeepAlive, Message
from swarden.engine_under_test.pair import InProcessLink
from swarden.fakes.link import UnsteadyLink
from swarden.harness.core.faults import FaultPlan

FIRST, SECOND, THIRD = KeepAlive(1), KeepAlive(2), KeepAlive(3)
FLIPPED = Close(9, "flipped")


def detected(_message: Message) -> None:
    """The damage of a flipped bit is detected."""


def undetected(_message: Message) -> Message:
    """A flipped bit makes another message."""
    return FLIPPED


class Wire:
    """Both ends of an unsteady link, which share a plan."""

    def __init__(self, damaged=detected) -> None:
        self.unread = Counter[int]()
        self.plan = FaultPlan(UnsteadyLink.FAULTS)
        self.here, self.there = [UnsteadyLink(end, self.plan, damaged, self.count) for end in InProcessLink.pair()]

    def count(self, message: Message, change: int) -> None:
        self.unread[message.transfer_id] += change

    def send(self, *messages: Message) -> None:
        for message in messages:
            self.here.send(message)


def wire(*armed: str, damaged=detected, **how) -> Wire:
    link = Wire(damaged)
    for fault in armed:
        link.plan.arm(fault, **how)
    return link


def test_messages_without_a_fault_arrive_at_once_and_in_order():
    link = wire()
    link.send(FIRST, SECOND)

    assert (link.there.receive(), link.there.receive()) == ([FIRST, SECOND], [])


def test_messages_go_both_ways():
    link = wire()
    link.send(FIRST)
    link.there.send(SECOND)

    assert (link.here.receive(), link.there.receive()) == ([SECOND], [FIRST])


def test_dropped_message_never_arrives():
    link = wire("link.drop", skip=1)
    link.send(FIRST, SECOND, THIRD)

    assert (link.there.receive(), link.there.receive()) == ([FIRST, THIRD], [])


def test_message_with_detected_damage_never_arrives():
    link = wire("link.corrupt", skip=1)
    link.send(FIRST, SECOND, THIRD)

    assert (link.there.receive(), link.there.receive()) == ([FIRST, THIRD], [])


def test_message_with_undetected_damage_arrives_changed():
    link = wire("link.corrupt", damaged=undetected)
    link.send(FIRST, SECOND)

    assert link.there.receive() == [FLIPPED, SECOND]


def test_duplicated_message_arrives_twice():
    link = wire("link.duplicate", skip=1)
    link.send(FIRST, SECOND, THIRD)

    assert (link.there.receive(), link.there.receive()) == ([FIRST, SECOND, SECOND, THIRD], [])


def test_delayed_messages_arrive_later_in_order():
    link = wire("link.delay")
    link.send(FIRST)
    at_first = link.there.receive()
    link.send(SECOND)

    assert (at_first, link.there.receive(), link.there.receive()) == ([], [FIRST, SECOND], [])


def test_every_receive_can_be_delayed():
    link = wire("link.delay", count=3)
    link.send(FIRST)

    assert [link.there.receive() for _ in range(4)] == [[], [], [], [FIRST]]


def test_reordered_messages_arrive_in_reverse_order():
    link = wire("link.reorder")
    link.send(FIRST, SECOND, THIRD)

    assert (link.there.receive(), link.there.receive()) == ([THIRD, SECOND, FIRST], [])


def test_single_message_does_not_cross_reorder():
    link = wire("link.reorder")
    link.send(FIRST)
    link.there.receive()

    assert link.plan.fired["link.reorder"] == 0


def test_messages_sent_while_the_link_is_down_are_dropped():
    link = wire("link.down", count=2)
    link.send(FIRST, SECOND, THIRD)

    assert link.there.receive() == [THIRD]


def test_messages_received_while_the_link_is_down_arrive_later():
    link = wire()
    link.send(FIRST)
    link.plan.arm("link.down")

    assert (link.there.receive(), link.there.receive()) == ([], [FIRST])


@pytest.mark.parametrize("fault", sorted(UnsteadyLink.FAULTS))
def test_receive_without_messages_crosses_no_fault(fault):
    link = wire(fault)

    link.there.receive()

    assert link.plan.fired[fault] == 0


@pytest.mark.parametrize(
    ("fault", "unread"),
    [
        pytest.param("link.drop", 1, id="lost"),
        pytest.param("link.corrupt", 1, id="damaged"),
        pytest.param("link.delay", 2, id="delayed"),
        pytest.param("link.duplicate", 0, id="received-twice"),
        pytest.param("link.reorder", 0, id="in-another-order"),
    ],
)
def test_messages_are_unread_until_they_are_received(fault, unread):
    link = wire(fault)
    link.send(FIRST, FIRST)
    counted = link.unread[1]

    link.there.receive()

    assert counted >= 2
    assert link.unread[1] == unread


@pytest.mark.parametrize("fault", sorted(UnsteadyLink.FAULTS))
def test_healed_link_delivers_again(fault):
    link = wire(fault, count=100)
    link.plan.heal(fault)
    link.send(FIRST, SECOND)

    assert (link.there.receive(), link.there.receive()) == ([FIRST, SECOND], [])
