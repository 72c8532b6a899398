"""The owner of a moved unit is found in the pass that writes it, or in the snapshots before and after."""

from random import Random
from types import SimpleNamespace

import pytest
import torch

from swarden.harness.engines.sglang.moves import AllocatorMove, FreeUnits, with_owners
from swarden.invariants import events, view
from swarden.invariants.events import Owner
from swarden.invariants.limits import Limits

R1, R2, N1 = Owner("request", 1), Owner("request", 2), Owner("tree", 1)


def snapshot(free, **units_by_owner):
    owners = {"r1": R1, "r2": R2, "n1": N1}
    holdings = [view.Holding(owners[name], units, name == "n1") for name, units in units_by_owner.items()]
    pool = view.PoolView("full", "page", 6, free, (), holdings)
    return view.Snapshot(1, Limits(1, 4, 64), (view.ComponentView("full", None, 1),), (pool,))


def moves(listed, before, after):
    return [event for _, event in with_owners(listed, before, after)]


def test_taken_unit_belongs_to_its_owner_after_the_step():
    found = moves([AllocatorMove("full", True, (2, 3))], snapshot([2, 3]), snapshot([], r1=[2], r2=[3]))

    assert found == [events.Taken("full", (2,), R1), events.Taken("full", (3,), R2)]


def test_taken_unit_that_a_pass_writes_belongs_to_its_request_and_is_given_to_the_tree():
    written = events.Written(1, 1, "full", 0, 1, (2,))

    found = moves([AllocatorMove("full", True, (2,)), written], snapshot([2]), snapshot([], n1=[2]))

    assert found == [events.Taken("full", (2,), R1), written, events.Given("full", (2,), R1, N1)]


def test_freed_unit_belonged_to_its_owner_before():
    found = moves([AllocatorMove("full", False, (2,))], snapshot([], n1=[2]), snapshot([2]))

    assert found == [events.Freed("full", (2,), N1, "freed", 0)]


def test_unit_that_is_freed_twice_has_no_owner_the_second_time():
    freed = AllocatorMove("full", False, (2,))

    first, second = moves([freed, freed], snapshot([], r1=[2]), snapshot([2, 2]))

    assert first.owner == R1
    assert second.owner.id == 0


@pytest.mark.parametrize("comes_first", [True, False])
def test_free_units_of_a_large_pool_are_those_of_the_allocator(comes_first):
    for seed in range(40):
        random, free, held = Random(seed), list(range(1, 701)), list[int]()
        allocator = SimpleNamespace(free_pages=torch.tensor(free), release_pages=torch.tensor([], dtype=torch.int64))
        units = FreeUnits(allocator)
        units.read(700, is_audit=True)
        for _ in range(20):
            for _ in range(random.randint(1, 3)):
                count = random.choice((0, 1, 2, 3, len(free)))
                held, free = held + free[:count], free[count:]
                freed = sorted(random.sample(held, min(len(held), random.choice((0, 1, 2, 600)))))
                held = [unit for unit in held if unit not in freed]
                free = freed + free if comes_first else free + freed
            allocator.free_pages = torch.tensor(free, dtype=torch.int64)
            assert list(units.read(700, is_audit=False)) == free
