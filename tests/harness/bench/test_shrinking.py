"""Both shrinkers start from the same failure, and their steps are counted equally."""

import pytest

from swarden.harness.bench.shrinking import Comparison, Effort, compare, figures


@pytest.fixture(scope="module")
def comparison() -> Comparison:
    """The comparison for a bug that fails one of the first runs, with a seed for which Hypothesis is quick."""
    return compare("S12", from_seed=13)


def test_our_shrinker_executes_at_most_a_tenth_of_the_steps(comparison):
    """Both shrinkers have executed steps, so the ratio is meaningful."""
    assert comparison.hypothesis.executed_steps > comparison.hypothesis.executions > comparison.ours.executions > 1
    assert 0 < comparison.ratio <= 0.1


def test_our_result_is_not_longer(comparison):
    """The result has no more ops and engine steps, and is short enough to read."""
    assert comparison.ours.ops <= min(12, comparison.hypothesis.ops)
    assert comparison.ours.engine_steps <= min(40, comparison.hypothesis.engine_steps)


def test_figures_name_the_mutant():
    """The figures are the ratio and the lengths."""
    one = Comparison("B0", 40, Effort(5, 20, 2, 3), Effort(50, 400, 4, 3))

    assert figures([one]) == {
        "shrink_step_ratio": {"B0": 0.05},
        "shrinking": {
            "B0": {
                "ops": 40,
                "ours": {"executions": 5, "executed_steps": 20, "ops": 2, "engine_steps": 3},
                "hypothesis": {"executions": 50, "executed_steps": 400, "ops": 4, "engine_steps": 3},
            }
        },
    }
