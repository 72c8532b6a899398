"""The pinned workload stays busy when the engine changes."""

from swarden.harness.bench.checked_step import measure


def test_pinned_workload_is_busy_in_each_measured_step():
    """At its least busy measured step: 4 running, 70 % of both pools, 20 nodes; each pair has a ratio."""
    [cost] = measure(pairs=1)

    least = cost.figures["workload"]
    assert least["least_running"] >= 4
    assert set(least["least_used"]) == {"full", "swa"}
    assert min(least["least_used"].values()) >= 0.7
    assert least["least_nodes"] >= 20
    assert least["noop_share"] < 0.05
    assert cost.figures["checked_step_ratios"] == [cost.figures["checked_step_ratio"]]
    assert cost.figures["invariants"] > 30
    assert cost.figures["units"] == 94
