"""The fault plan: an armed fault fires at the right crossings."""

import pytest

from swarden.harness.core.faults import FaultPlan, UnknownFault


def test_armed_fault_fires_count_times_after_the_skipped_crossings():
    plan = FaultPlan(["pool.refuses"])
    plan.arm("pool.refuses", skip=1, count=2)

    assert [plan.fires("pool.refuses") for _ in range(5)] == [False, True, True, False, False]


def test_a_healed_fault_does_not_fire():
    plan = FaultPlan(["pool.refuses"])
    plan.arm("pool.refuses", count=5)

    assert [plan.fires("pool.refuses"), plan.heal("pool.refuses"), plan.fires("pool.refuses")] == [True, True, False]


@pytest.mark.parametrize("name", [pytest.param("client.gone", id="one of them"), pytest.param(None, id="all")])
def test_healing_without_an_armed_fault_returns_false(name):
    assert FaultPlan(["client.gone"]).heal(name) is False


def test_each_firing_is_counted_and_reported():
    reported: list[str] = []
    plan = FaultPlan(["pool.refuses"], reported.append)
    plan.arm("pool.refuses", skip=1, count=2)
    for _ in range(5):
        plan.fires("pool.refuses")

    assert (dict(plan.fired), reported) == ({"pool.refuses": 2}, ["pool.refuses"] * 2)


@pytest.mark.parametrize(
    "use",
    [
        pytest.param(lambda plan: plan.arm("link.down"), id="arm"),
        pytest.param(lambda plan: plan.heal("link.down"), id="heal"),
        pytest.param(lambda plan: plan.fires("link.down"), id="fires"),
    ],
)
def test_unknown_fault_is_refused_with_the_known_faults(use):
    with pytest.raises(UnknownFault) as caught:
        use(FaultPlan(["pool.refuses", "client.gone"]))

    assert str(caught.value) == "fault link.down: not one of client.gone, pool.refuses"
