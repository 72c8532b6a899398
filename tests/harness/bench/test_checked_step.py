"""The pinned workload stays busy when the engine changes."""

import pytest

from swarden.harness.bench.checked_step import measure
from swarden.harness.core.ops import Step


@pytest.fixture(scope="module")
def cost():
    """The cost of one pair."""
    return measure(pairs=1)


def test_pinned_workload_is_busy_in_each_measured_step(cost):
    """At its least busy measured step: 4 running, 70 % of both pools, 20 nodes; one engine step an op."""
    workload = cost.workload

    assert workload.least_running >= 4
    assert set(workload.least_used) == {"full", "swa"}
    assert min(workload.least_used.values()) >= 0.7
    assert workload.least_nodes >= 20
    assert workload.noop_share < 0.05
    assert {op.count for op in workload.measured if isinstance(op, Step)} == {1}


def test_ratio_is_over_the_empty_machine_of_the_same_pair(cost):
    """One pair gives one ratio, of its two figures."""
    assert cost.ratios == [cost.ratio] == [cost.checked_us / cost.empty_us]
    assert cost.invariants > 30
    assert cost.units == 94
