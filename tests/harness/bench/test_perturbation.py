"""Every perturbation is noticed by the first read of the changed content, and blamed on nothing else."""

import pytest

from harness.bench.perturbation import Kind, Outcome, measure

RUNS = 6  # half of them with a model


@pytest.mark.parametrize("kind", Kind)
def test_perturbation_is_noticed_and_nothing_else_is_blamed(kind):
    outcomes = measure(kind, RUNS)

    assert {outcome: num for outcome, num in outcomes.items() if num and outcome != Outcome.MOOT} == {
        Outcome.NOTICED: RUNS
    }
