"""The unsteady host store: failed, torn, overtaken or not acknowledged, and healed again."""

import pytest
import torch

from engine_under_test.host.copier import HostCopier
from engine_under_test.ports import Acknowledgement, PageCopy
from fakes.host import UnsteadyHostStore
from harness.core.faults import FaultPlan

FAILED = "the copy failed"
TORN = "the copy broke off half-way"


class Shelf:
    """A store between a device with eight pages, which hold their number, and a host with as many empty ones."""

    def __init__(self) -> None:
        self.plan = FaultPlan(UnsteadyHostStore.FAULTS)
        self.device = torch.arange(8).view(8, 1)
        self.host = torch.zeros((8, 1), dtype=torch.int64)
        self.store = UnsteadyHostStore(HostCopier(), self.plan)

    def back_up(self, transfer, pages, onto):
        self.store.begin(transfer, [PageCopy(self.device, pages, self.host, onto, page_dim=0)])

    @property
    def held(self) -> list[int]:
        """What is on the host's pages."""
        return self.host.flatten().tolist()


def shelf(*armed, **how):
    """A shelf with pages 3 to 6 of the device on their way to the first four of the host, under these faults."""
    one = Shelf()
    for fault in armed:
        one.plan.arm(fault, **how)
    one.back_up(1, [3, 4, 5, 6], onto=[0, 1, 2, 3])
    return one


def test_without_a_fault_all_is_copied_when_it_is_asked_for():
    one = shelf()

    assert (one.store.acknowledged(), one.held) == ([Acknowledgement(1)], [3, 4, 5, 6, 0, 0, 0, 0])


def test_nothing_is_copied_before_it_is_asked_for():
    """Who frees a page too early has it overwritten before it is read."""
    one = shelf()
    one.store.wait()
    before = one.held

    one.device[4] = 9
    one.store.acknowledged()

    assert (before, one.held) == ([0] * 8, [3, 9, 5, 6, 0, 0, 0, 0])


def test_what_was_acknowledged_is_not_acknowledged_again():
    one = shelf()

    assert [len(one.store.acknowledged()) for _ in range(3)] == [1, 0, 0]


def test_several_transfers_end_in_the_order_in_which_they_began():
    one = shelf()
    one.back_up(2, [7], onto=[0])

    assert one.store.acknowledged() == [Acknowledgement(1), Acknowledgement(2)]
    assert one.held == [7, 4, 5, 6, 0, 0, 0, 0]


@pytest.mark.parametrize(
    ("fault", "failure", "held"),
    [
        pytest.param("host.fails", FAILED, [0, 0, 0, 0, 0, 0, 0, 0], id="fails"),
        pytest.param("host.torn", TORN, [3, 4, 0, 0, 0, 0, 0, 0], id="torn"),
    ],
)
def test_a_transfer_that_comes_to_nothing_says_so(fault, failure, held):
    one = shelf(fault)

    assert (one.store.acknowledged(), one.held) == ([Acknowledgement(1, failure)], held)


@pytest.mark.parametrize(
    ("fault", "failure"), [pytest.param("host.fails", FAILED, id="fails"), pytest.param("host.torn", TORN, id="torn")]
)
def test_the_transfer_behind_one_that_comes_to_nothing_is_copied(fault, failure):
    one = shelf(fault)
    one.back_up(2, [7, 2], onto=[6, 7])

    assert one.store.acknowledged() == [Acknowledgement(1, failure), Acknowledgement(2)]
    assert one.held[4:] == [0, 0, 7, 2]


def test_of_a_torn_transfer_half_of_each_pool_is_copied():
    one = Shelf()
    one.plan.arm("host.torn")
    copies = [
        PageCopy(one.device, [1, 2], one.host, [4, 5], page_dim=0),
        PageCopy(one.device, [7], one.host, [6], page_dim=0),
    ]
    one.store.begin(1, copies)
    one.store.acknowledged()

    assert one.held == [0, 0, 0, 0, 1, 0, 0, 0]


def test_a_slow_transfer_ends_later_and_is_whole_then():
    one = shelf("host.slow")

    first = one.store.acknowledged()
    one.store.wait()
    before = one.held

    assert (first, before) == ([], [0] * 8)
    assert (one.store.acknowledged(), one.held) == ([Acknowledgement(1)], [3, 4, 5, 6, 0, 0, 0, 0])


def test_others_overtake_a_slow_transfer():
    one = shelf("host.slow")
    one.back_up(2, [7], onto=[0])

    first, held = one.store.acknowledged(), one.held

    assert (first, held) == ([Acknowledgement(2)], [7, 0, 0, 0, 0, 0, 0, 0])
    assert (one.store.acknowledged(), one.held[0]) == ([Acknowledgement(1)], 3)


def test_each_transfer_that_is_asked_for_can_be_slow():
    one = shelf("host.slow", skip=1, count=2)
    one.back_up(2, [7], onto=[4])
    one.back_up(3, [7], onto=[5])

    assert [ack.transfer for ack in one.store.acknowledged()] == [1]
    assert [ack.transfer for ack in one.store.acknowledged()] == [2, 3]


def test_a_slow_transfer_crosses_no_other_fault_until_it_ends():
    one = shelf("host.slow", "host.fails")

    assert [one.store.acknowledged(), one.store.acknowledged()] == [[], [Acknowledgement(1, FAILED)]]


def test_while_the_store_is_silent_nobody_hears_of_any():
    one = shelf("host.silent", count=2)
    one.back_up(2, [7], onto=[0])

    assert [one.store.acknowledged(), one.held, one.store.acknowledged()] == [[], [0] * 8, []]
    assert one.store.acknowledged() == [Acknowledgement(1), Acknowledgement(2)]


def test_who_has_nothing_to_ask_for_does_not_cross_silence():
    one = Shelf()
    one.plan.arm("host.silent")

    one.store.acknowledged()

    assert one.plan.fired["host.silent"] == 0


@pytest.mark.parametrize("fault", sorted(UnsteadyHostStore.FAULTS))
def test_once_a_fault_is_healed_what_is_under_way_is_copied(fault):
    one = shelf(fault, count=100)
    one.plan.heal()

    assert (one.store.acknowledged(), one.held) == ([Acknowledgement(1)], [3, 4, 5, 6, 0, 0, 0, 0])


@pytest.mark.parametrize("fault", ["host.silent", "host.slow"])
def test_a_store_that_never_answers_is_healed(fault):
    one = shelf(fault, count=100)
    unanswered = [one.store.acknowledged() for _ in range(5)]
    one.plan.heal(fault)

    assert (unanswered, one.store.acknowledged()) == ([[]] * 5, [Acknowledgement(1)])


def test_the_faults_are_those_of_the_docstring():
    assert list(UnsteadyHostStore.FAULTS) == ["host.fails", "host.torn", "host.slow", "host.silent"]
