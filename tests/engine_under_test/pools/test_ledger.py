"""A ledger takes all units or none, reuses units in the configured order, and withholds fenced units."""

import pytest

from swarden.engine_under_test.errors import PoolExhausted
from swarden.engine_under_test.pools.ledger import Ledger
from swarden.engine_under_test.units import request_owner
from swarden.invariants.events import TREE, Freed, Given, Refused, Taken
from tests.engine_under_test.builders import EventLog

R1 = request_owner(1)


def test_a_new_ledger_has_every_unit_but_the_padding_free():
    assert Ledger("full", 3, reuse="lifo").free_units == (1, 2, 3)


def test_taken_units_are_not_free():
    ledger = Ledger("full", 4, reuse="fifo")

    units = ledger.take(3, owner=R1)

    assert (units, ledger.free_units, ledger.num_free) == ([1, 2, 3], (4,), 1)


def test_a_take_of_more_than_is_free_takes_nothing():
    log = EventLog()
    ledger = Ledger("full", 2, reuse="lifo", observer=log)

    with pytest.raises(PoolExhausted) as caught:
        ledger.take(3, owner=R1)

    error = caught.value
    assert (str(error), error.pool, error.want, error.free) == ("full: want 3, 2 free", "full", 3, 2)
    assert (ledger.free_units, log.events) == ((1, 2), [Refused("full", R1, 3, 2)])


class LimitedBacking:
    """Memory for at most `most` units a take; records the calls."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.calls: list[tuple[str, int]] = []

    def allows(self, pool: str, count: int) -> bool:
        self.calls.append((pool, count))
        return count <= self.most


def test_a_take_without_memory_behind_it_takes_nothing():
    log = EventLog()
    ledger = Ledger("full", 4, reuse="lifo", observer=log, backing=LimitedBacking(2))

    with pytest.raises(PoolExhausted) as caught:
        ledger.take(3, owner=R1)

    assert (str(caught.value), ledger.num_free, log.events) == (
        "full: want 3, 4 free, no memory behind them",
        4,
        [Refused("full", R1, 3, 4)],
    )


def test_backing_is_asked_once_per_take_and_not_for_zero_units():
    backing = LimitedBacking(2)
    ledger = Ledger("full", 4, reuse="lifo", backing=backing)

    ledger.take(0, owner=R1)
    ledger.take(2, owner=R1)

    assert backing.calls == [("full", 2)]


@pytest.mark.parametrize(
    ("reuse", "units"),
    [
        pytest.param("lifo", [2, 3], id="lifo: the unit freed last is first"),
        pytest.param("fifo", [4, 3], id="fifo: the unit freed last is last"),
    ],
)
def test_freed_units_are_reused_in_the_configured_order(reuse, units):
    ledger = Ledger("full", 4, reuse=reuse)
    ledger.take(4, owner=R1)
    ledger.free([4, 3, 2], owner=R1, cause="finished")

    assert ledger.take(2, owner=R1) == units


@pytest.mark.parametrize(
    ("launch", "num_free", "fenced"),
    [
        pytest.param(2, 0, {3: (1,), 4: (2,)}, id="an earlier launch"),
        pytest.param(3, 1, {4: (2,)}, id="the first of the two"),
        pytest.param(4, 2, {}, id="a later launch completes the earlier ones"),
    ],
)
def test_completed_launch_frees_its_fenced_units(launch, num_free, fenced):
    ledger = Ledger("full", 2, reuse="fifo")
    first, second = ledger.take(2, owner=R1)
    ledger.free([first], owner=R1, cause="finished", after=3)
    ledger.free([second], owner=R1, cause="finished", after=4)

    ledger.complete(launch)

    assert (ledger.num_free, ledger.fenced_units) == (num_free, fenced)


def test_a_unit_freed_behind_a_completed_launch_is_free_at_once():
    ledger = Ledger("full", 1, reuse="lifo")
    units = ledger.take(1, owner=R1)
    ledger.complete(3)

    ledger.free(units, owner=R1, cause="finished", after=3)

    assert (ledger.num_free, ledger.fenced_units) == (1, {})


def test_observer_receives_every_change_of_owner():
    log = EventLog()
    ledger = Ledger("full", 2, reuse="fifo", observer=log)

    units = ledger.take(2, owner=R1)
    ledger.give(units, from_owner=R1, to_owner=TREE)
    ledger.free(units, owner=TREE, cause="evicted")

    assert log.events == [
        Taken("full", (1, 2), R1),
        Given("full", (1, 2), R1, TREE),
        Freed("full", (1, 2), TREE, "evicted", 0),
    ]


def test_empty_take_give_and_free_are_not_reported():
    log = EventLog()
    ledger = Ledger("full", 2, reuse="fifo", observer=log)

    ledger.free(ledger.take(0, owner=R1), owner=R1, cause="finished")
    ledger.give([], from_owner=R1, to_owner=TREE)

    assert log.events == []
