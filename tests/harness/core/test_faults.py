"""The fault plan says when an armed fault comes true."""

import pytest

from harness.core.faults import FaultPlan, UnknownFault


def test_what_is_not_armed_never_fires():
    plan = FaultPlan(["pool.refuses"])

    assert [plan.fires("pool.refuses") for _ in range(3)] == [False, False, False]


def test_an_armed_fault_fires_behind_the_skipped_crossings_as_often_as_asked():
    plan = FaultPlan(["pool.refuses"])
    plan.arm("pool.refuses", skip=1, count=2)

    assert [plan.fires("pool.refuses") for _ in range(5)] == [False, True, True, False, False]


def test_each_fault_counts_its_own_crossings():
    plan = FaultPlan(["pool.refuses", "client.gone"])
    plan.arm("pool.refuses", skip=1)

    assert [plan.fires(name) for name in ("client.gone", "pool.refuses", "pool.refuses")] == [False, False, True]


def test_what_is_armed_again_forgets_what_was_left_of_it():
    plan = FaultPlan(["pool.refuses"])
    plan.arm("pool.refuses", count=5)
    plan.arm("pool.refuses", skip=1, count=1)

    assert [plan.fires("pool.refuses") for _ in range(3)] == [False, True, False]


def test_a_count_of_none_never_fires():
    plan = FaultPlan(["pool.refuses"])
    plan.arm("pool.refuses", count=0)

    assert [plan.fires("pool.refuses"), plan.heal()] == [False, False]


def test_a_healed_fault_does_not_fire():
    plan = FaultPlan(["pool.refuses"])
    plan.arm("pool.refuses", count=5)

    assert [plan.fires("pool.refuses"), plan.heal("pool.refuses"), plan.fires("pool.refuses")] == [True, True, False]


def test_healing_all_disarms_every_fault():
    plan = FaultPlan(["pool.refuses", "client.gone"])
    plan.arm("pool.refuses")
    plan.arm("client.gone")

    assert [plan.heal(), plan.fires("pool.refuses"), plan.fires("client.gone")] == [True, False, False]


@pytest.mark.parametrize("name", [pytest.param("client.gone", id="one of them"), pytest.param(None, id="all")])
def test_healing_what_is_not_armed_finds_nothing_to_do(name):
    assert FaultPlan(["client.gone"]).heal(name) is False


def test_every_firing_is_counted_and_told():
    told: list[str] = []
    plan = FaultPlan(["pool.refuses"], told.append)
    plan.arm("pool.refuses", skip=1, count=2)
    for _ in range(5):
        plan.fires("pool.refuses")

    assert (dict(plan.fired), told) == ({"pool.refuses": 2}, ["pool.refuses"] * 2)


@pytest.mark.parametrize(
    "use",
    [
        pytest.param(lambda plan: plan.arm("link.down"), id="arm"),
        pytest.param(lambda plan: plan.heal("link.down"), id="heal"),
        pytest.param(lambda plan: plan.fires("link.down"), id="fires"),
    ],
)
def test_a_fault_that_nobody_knows_is_refused_with_those_that_are_known(use):
    with pytest.raises(UnknownFault) as caught:
        use(FaultPlan(["pool.refuses", "client.gone"]))

    assert str(caught.value) == "fault link.down: not one of client.gone, pool.refuses"
