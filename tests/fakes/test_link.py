"""The unsteady link: what is sent is lost, damaged, doubled or late, and what is healed comes through again."""

import pytest

from engine_under_test.disaggregation.link import InProcessLink
from engine_under_test.messages import Close, KeepAlive, Message
from fakes.link import UnsteadyLink
from harness.core.faults import FaultPlan

FIRST, SECOND, THIRD = KeepAlive(1), KeepAlive(2), KeepAlive(3)
TURNED = Close(9, "turned over")


def lost(_message: Message) -> None:
    """A bit that is turned over shows."""


def turned(_message: Message) -> Message:
    """A bit that is turned over makes another message of it."""
    return TURNED


class Wire:
    """Both ends of an unsteady link, which share a plan."""

    def __init__(self, damaged=lost) -> None:
        self.plan = FaultPlan(UnsteadyLink.FAULTS)
        self.here, self.there = [UnsteadyLink(end, self.plan, damaged) for end in InProcessLink.pair()]

    def send(self, *messages: Message) -> None:
        for message in messages:
            self.here.send(message)


def wire(*armed: str, damaged=lost, **how) -> Wire:
    one = Wire(damaged)
    for fault in armed:
        one.plan.arm(fault, **how)
    return one


def test_without_a_fault_all_comes_at_once_and_in_order():
    one = wire()
    one.send(FIRST, SECOND)

    assert (one.there.receive(), one.there.receive()) == ([FIRST, SECOND], [])


def test_messages_go_both_ways():
    one = wire()
    one.send(FIRST)
    one.there.send(SECOND)

    assert (one.here.receive(), one.there.receive()) == ([SECOND], [FIRST])


def test_what_is_dropped_never_comes():
    one = wire("link.drop", skip=1)
    one.send(FIRST, SECOND, THIRD)

    assert (one.there.receive(), one.there.receive()) == ([FIRST, THIRD], [])


def test_what_is_damaged_and_shows_it_never_comes():
    one = wire("link.corrupt", skip=1)
    one.send(FIRST, SECOND, THIRD)

    assert (one.there.receive(), one.there.receive()) == ([FIRST, THIRD], [])


def test_what_is_damaged_and_does_not_show_it_comes_as_what_it_became():
    one = wire("link.corrupt", damaged=turned)
    one.send(FIRST, SECOND)

    assert one.there.receive() == [TURNED, SECOND]


def test_what_is_doubled_comes_twice():
    one = wire("link.duplicate", skip=1)
    one.send(FIRST, SECOND, THIRD)

    assert (one.there.receive(), one.there.receive()) == ([FIRST, SECOND, SECOND, THIRD], [])


def test_what_is_delayed_comes_with_the_next_look_and_in_order():
    one = wire("link.delay")
    one.send(FIRST)
    at_first = one.there.receive()
    one.send(SECOND)

    assert (at_first, one.there.receive(), one.there.receive()) == ([], [FIRST, SECOND], [])


def test_each_look_can_be_in_vain():
    one = wire("link.delay", count=3)
    one.send(FIRST)

    assert [one.there.receive() for _ in range(4)] == [[], [], [], [FIRST]]


def test_what_is_reordered_comes_the_last_first():
    one = wire("link.reorder")
    one.send(FIRST, SECOND, THIRD)

    assert (one.there.receive(), one.there.receive()) == ([THIRD, SECOND, FIRST], [])


def test_one_message_has_no_other_order():
    one = wire("link.reorder")
    one.send(FIRST)
    one.there.receive()

    assert one.plan.fired["link.reorder"] == 0


def test_while_the_link_is_down_nothing_that_is_sent_gets_through():
    one = wire("link.down", count=2)
    one.send(FIRST, SECOND, THIRD)

    assert one.there.receive() == [THIRD]


def test_while_the_link_is_down_nothing_is_seen_of_what_has_come():
    one = wire()
    one.send(FIRST)
    one.plan.arm("link.down")

    assert (one.there.receive(), one.there.receive()) == ([], [FIRST])


@pytest.mark.parametrize("fault", sorted(UnsteadyLink.FAULTS))
def test_a_look_at_nothing_crosses_no_fault(fault):
    one = wire(fault)

    one.there.receive()

    assert one.plan.fired[fault] == 0


@pytest.mark.parametrize("fault", ["link.delay", "link.down", "link.reorder"])
def test_nothing_that_has_come_is_lost_by_looking(fault):
    one = wire()
    one.send(FIRST, SECOND)
    one.plan.arm(fault, count=3)

    seen = [message for _ in range(4) for message in one.there.receive()]

    assert sorted(message.transfer_id for message in seen) == [1, 2]


@pytest.mark.parametrize("fault", sorted(UnsteadyLink.FAULTS))
def test_a_link_that_never_gets_better_is_healed(fault):
    one = wire(fault, count=100)
    one.plan.heal(fault)
    one.send(FIRST, SECOND)

    assert (one.there.receive(), one.there.receive()) == ([FIRST, SECOND], [])


def test_the_faults_are_those_of_the_docstring():
    assert list(UnsteadyLink.FAULTS) == [
        "link.drop",
        "link.corrupt",
        "link.duplicate",
        "link.delay",
        "link.reorder",
        "link.down",
    ]
