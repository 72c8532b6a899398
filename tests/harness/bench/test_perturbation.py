"""Every perturbation is noticed by the first read of the changed content, and blamed on nothing else."""

import pytest

from swarden.harness.bench.perturbation import PerturbationOutcome, measure
from swarden.harness.engines.own.faults import PERTURBATIONS

RUNS = 6  # half of them with a model


@pytest.mark.parametrize("fault", PERTURBATIONS)
def test_perturbation_is_noticed_and_nothing_else_is_blamed(fault):
    outcomes = measure(fault, RUNS)

    assert {outcome: num for outcome, num in outcomes.items() if num and outcome != PerturbationOutcome.MOOT} == {
        PerturbationOutcome.NOTICED: RUNS
    }
