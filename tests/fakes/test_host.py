"""The unsteady host store: copies fail, stay in flight or are not acknowledged, until it is healed."""

import pytest
import torch

from swarden.engine_under_test.host.tier import HostCopier
from swarden.engine_under_test.ports import Acknowledgement, PageCopy
from swarden.fakes.host import UnsteadyHostStore
from swarden.harness.core.faults import FaultPlan

FAILED = "the copy failed"
TORN = "the copy failed half-way"


class HostAndDevice:
    """A device with eight pages, each filled with its number, and a host with eight empty pages."""

    def __init__(self) -> None:
        self.plan = FaultPlan(UnsteadyHostStore.FAULTS)
        self.device = torch.arange(8).view(8, 1)
        self.host = torch.zeros((8, 1), dtype=torch.int64)
        self.store = UnsteadyHostStore(HostCopier(), self.plan)

    def back_up(self, job, pages, onto):
        self.store.begin(job, [PageCopy(self.device, pages, self.host, onto, page_dim=0)])

    @property
    def held(self) -> list[int]:
        """The content of the pages on the host."""
        return self.host.flatten().tolist()


def copying(*armed, **how):
    """Armed faults, and a copy in flight from pages 3 to 6 of the device to pages 0 to 3 of the host."""
    memory = HostAndDevice()
    for fault in armed:
        memory.plan.arm(fault, **how)
    memory.back_up(1, [3, 4, 5, 6], onto=[0, 1, 2, 3])
    return memory


def test_copy_without_a_fault_is_made_when_it_is_acknowledged():
    memory = copying()

    assert (memory.store.acknowledged(), memory.held) == ([Acknowledgement(1)], [3, 4, 5, 6, 0, 0, 0, 0])


def test_copy_is_as_late_as_possible():
    """If a page is freed too early, its copy has wrong content."""
    memory = copying()
    memory.store.wait()
    before = memory.held

    memory.device[4] = 9
    memory.store.acknowledged()

    assert (before, memory.held) == ([0] * 8, [3, 9, 5, 6, 0, 0, 0, 0])


def test_copy_is_acknowledged_once():
    memory = copying()

    assert [len(memory.store.acknowledged()) for _ in range(3)] == [1, 0, 0]


def test_copies_are_acknowledged_in_order():
    memory = copying()
    memory.back_up(2, [7], onto=[0])

    assert memory.store.acknowledged() == [Acknowledgement(1), Acknowledgement(2)]
    assert memory.held == [7, 4, 5, 6, 0, 0, 0, 0]


@pytest.mark.parametrize(
    ("fault", "failure", "held"),
    [
        pytest.param("host.fails", FAILED, [0, 0, 0, 0, 0, 0, 0, 0], id="fails"),
        pytest.param("host.torn", TORN, [3, 4, 0, 0, 0, 0, 0, 0], id="torn"),
    ],
)
def test_failed_copy_is_acknowledged_as_failed(fault, failure, held):
    memory = copying(fault)

    assert (memory.store.acknowledged(), memory.held) == ([Acknowledgement(1, failure)], held)


@pytest.mark.parametrize(
    ("fault", "failure"), [pytest.param("host.fails", FAILED, id="fails"), pytest.param("host.torn", TORN, id="torn")]
)
def test_copy_after_a_failed_one_is_made(fault, failure):
    memory = copying(fault)
    memory.back_up(2, [7, 2], onto=[6, 7])

    assert memory.store.acknowledged() == [Acknowledgement(1, failure), Acknowledgement(2)]
    assert memory.held[4:] == [0, 0, 7, 2]


def test_torn_copy_has_half_of_each_pool():
    memory = HostAndDevice()
    memory.plan.arm("host.torn")
    copies = [
        PageCopy(memory.device, [1, 2], memory.host, [4, 5], page_dim=0),
        PageCopy(memory.device, [7], memory.host, [6], page_dim=0),
    ]
    memory.store.begin(1, copies)
    memory.store.acknowledged()

    assert memory.held == [0, 0, 0, 0, 1, 0, 0, 0]


def test_slow_copy_is_acknowledged_later_and_complete():
    memory = copying("host.slow")

    first = memory.store.acknowledged()
    memory.store.wait()
    before = memory.held

    assert (first, before) == ([], [0] * 8)
    assert (memory.store.acknowledged(), memory.held) == ([Acknowledgement(1)], [3, 4, 5, 6, 0, 0, 0, 0])


def test_later_copy_overtakes_a_slow_one():
    memory = copying("host.slow")
    memory.back_up(2, [7], onto=[0])

    first, held = memory.store.acknowledged(), memory.held

    assert (first, held) == ([Acknowledgement(2)], [7, 0, 0, 0, 0, 0, 0, 0])
    assert (memory.store.acknowledged(), memory.held[0]) == ([Acknowledgement(1)], 3)


def test_each_copy_in_flight_crosses_slow():
    memory = copying("host.slow", skip=1, count=2)
    memory.back_up(2, [7], onto=[4])
    memory.back_up(3, [7], onto=[5])

    assert [ack.job for ack in memory.store.acknowledged()] == [1]
    assert [ack.job for ack in memory.store.acknowledged()] == [2, 3]


def test_slow_copy_crosses_no_other_fault_until_it_ends():
    memory = copying("host.slow", "host.fails")

    assert [memory.store.acknowledged(), memory.store.acknowledged()] == [[], [Acknowledgement(1, FAILED)]]


def test_silent_store_acknowledges_no_copy():
    memory = copying("host.silent", count=2)
    memory.back_up(2, [7], onto=[0])

    assert [memory.store.acknowledged(), memory.held, memory.store.acknowledged()] == [[], [0] * 8, []]
    assert memory.store.acknowledged() == [Acknowledgement(1), Acknowledgement(2)]


def test_store_without_copies_does_not_cross_silent():
    memory = HostAndDevice()
    memory.plan.arm("host.silent")

    memory.store.acknowledged()

    assert memory.plan.fired["host.silent"] == 0


@pytest.mark.parametrize("fault", sorted(UnsteadyHostStore.FAULTS))
def test_healed_store_completes_the_copies_in_flight(fault):
    memory = copying(fault, count=100)
    memory.plan.heal()

    assert (memory.store.acknowledged(), memory.held) == ([Acknowledgement(1)], [3, 4, 5, 6, 0, 0, 0, 0])
