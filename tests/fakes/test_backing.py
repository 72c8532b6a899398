"""The fake backing maps every page until a fault is armed."""

from swarden.fakes.backing import FakeBacking
from swarden.harness.core.faults import FaultPlan


def test_backing_without_a_fault_has_memory_for_any_take():
    assert FakeBacking(FaultPlan(["pool.refuses"])).allows("full", 1000)


def test_armed_fault_with_a_skip_refuses_the_second_pool():
    plan = FaultPlan(["pool.refuses"])
    backing = FakeBacking(plan)
    plan.arm("pool.refuses", skip=1)

    assert [backing.allows(pool, 2) for pool in ("full", "swa", "full", "swa")] == [True, False, True, True]


def test_take_of_no_pages_does_not_cross_the_fault():
    plan = FaultPlan(["pool.refuses"])
    backing = FakeBacking(plan)
    plan.arm("pool.refuses")

    assert [backing.allows("full", 0), backing.allows("full", 1)] == [True, False]
