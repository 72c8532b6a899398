"""Owners of units: by their moves, and by what tables and reader counts say."""

import pytest

from swarden.harness.kit.owners import UNKNOWN, Owners, UnitFacts, pool_view
from swarden.invariants.events import TREE, Freed, Given, Owner, Taken
from swarden.invariants.view import FENCE, FREE, Holding

R1, R2, N1, N2 = Owner("request", 1), Owner("request", 2), Owner("tree", 1), Owner("tree", 2)


def owners(**owner_of):
    return Owners("blocks", {int(unit[1:]): owner for unit, owner in owner_of.items()})


def test_units_that_are_taken_at_once_are_told_apart_by_their_owners():
    known = owners(u1=FREE, u2=FREE, u3=FREE)

    events = known.take([3, 1, 2], {1: R2, 2: R1, 3: R1}.__getitem__)

    assert events == [Taken("blocks", (3, 2), R1), Taken("blocks", (1,), R2)]


def test_unit_is_freed_by_its_owner_and_has_none_the_second_time():
    known = owners(u1=R1)

    first, second = known.free([1]), known.free([1])

    assert first == [Freed("blocks", (1,), R1, "freed", 0)]
    assert second == [Freed("blocks", (1,), UNKNOWN, "freed", 0)]


def test_unit_that_a_launch_may_still_read_is_fenced():
    known = owners(u1=R1)

    known.free([1], cause="deferred", launch=7)

    assert known.owner_of[1] == FENCE
    assert known.settle({1: R2}) == []


def test_units_that_changed_hands_are_given_and_nodes_that_were_split_are_one_owner():
    known = owners(u1=R1, u2=N1, u3=R1, u4=FREE, u5=R2)

    events = known.settle({1: N2, 2: N2, 3: N2, 4: R1, 5: FREE})

    assert events == [Given("blocks", (1, 3), R1, N2), Freed("blocks", (5,), R2, "found free", 0)]
    assert known.settle({1: N2, 2: N2, 3: N2, 5: FREE}) == []
    assert known.free([2]) == [Freed("blocks", (2,), N2, "freed", 0)]


def test_all_units_of_an_owner_move_to_the_next():
    known = owners(u1=R1, u2=R2, u3=R1)

    assert known.give(R1, R2) == [Given("blocks", (1, 3), R1, R2)]
    assert known.give(R1, R2) == []


@pytest.mark.parametrize(
    ("facts", "holdings", "free"),
    [
        pytest.param(UnitFacts((), 0, False), [], [1], id="free"),
        pytest.param(UnitFacts((), 0, True), [Holding(TREE, [1], True, 0)], [], id="evictable"),
        pytest.param(UnitFacts((R1,), 1, True), [Holding(TREE, [1], True, 1)], [1], id="cached, and read"),
        pytest.param(UnitFacts((R1, R2), 2, False), [Holding(TREE, [1], True, 2)], [1], id="shared"),
        pytest.param(UnitFacts((R1,), 2, False), [Holding(TREE, [1], True, 2)], [1], id="counted too often"),
        pytest.param(UnitFacts((R1,), 0, False), [Holding(R1, [1], False)], [1], id="held, and not counted"),
        pytest.param(UnitFacts((), 1, False), [], [1], id="counted, and not held"),
    ],
)
def test_unit_in_the_free_queue_is_free_unless_it_can_be_evicted(facts, holdings, free):
    """A law compares readers with the places in tables, and another one finds units that are free and held."""
    pool = pool_view("blocks", "block", {1: facts}, [1])

    assert (pool.holdings, pool.free) == (holdings, free)


@pytest.mark.parametrize("facts", [UnitFacts((), 1, False), UnitFacts((), 0, True)], ids=["counted", "cached"])
def test_unit_that_is_neither_held_nor_in_the_free_queue_is_a_leak(facts):
    assert pool_view("blocks", "block", {1: facts}, []).owners_by_unit()[1] == []
