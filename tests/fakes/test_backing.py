"""The fake backing has memory for everything until a fault is armed."""

from fakes.backing import FakeBacking
from harness.core.faults import FaultPlan


def test_there_is_memory_for_everything():
    assert FakeBacking(FaultPlan(["pool.refuses"])).allows("full", 1000)


def test_with_a_skip_the_second_of_two_pools_refuses():
    plan = FaultPlan(["pool.refuses"])
    backing = FakeBacking(plan)
    plan.arm("pool.refuses", skip=1)

    assert [backing.allows(pool, 2) for pool in ("full", "swa", "full", "swa")] == [True, False, True, True]


def test_whoever_asks_for_nothing_crosses_nothing():
    plan = FaultPlan(["pool.refuses"])
    backing = FakeBacking(plan)
    plan.arm("pool.refuses")

    assert [backing.allows("full", 0), backing.allows("full", 1)] == [True, False]
