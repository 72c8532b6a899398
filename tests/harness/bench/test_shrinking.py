"""Both shrinkers start from the same failure, and their steps are counted equally."""

import pytest

from swarden.harness.bench.shrinking import compare


@pytest.fixture(scope="module")
def figures():
    """The comparison for a bug that fails one of the first runs, with a seed for which Hypothesis is quick."""
    return compare("S12", from_seed=13).figures


def test_our_shrinker_executes_at_most_a_tenth_of_the_steps(figures):
    """Both shrinkers have executed steps, so the ratio is meaningful."""
    ours, hypothesis = figures["swarden"], figures["hypothesis"]

    assert hypothesis["executed steps"] > hypothesis["runs"] > ours["runs"] > 1
    assert 0 < figures["ratio"] <= 0.1


def test_our_result_is_not_longer(figures):
    """The result has no more ops and engine steps, and is short enough to read."""
    ours, hypothesis = figures["swarden"], figures["hypothesis"]

    assert ours["ops"] <= min(12, hypothesis["ops"])
    assert ours["engine steps"] <= min(40, hypothesis["engine steps"])
