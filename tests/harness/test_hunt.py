"""Scores over seeds: when a mutant counts as found, and what its figures are."""

import pytest

from harness.hunt import Hunted, Score
from harness.mutants.catalog import BY_ID

MUTANT = BY_ID["B14"]


def hunts(*caught):
    """A hunt a seed; seed n needs n seconds and n + 1 ops."""
    return [
        Hunted("B14", seed, is_caught, "the_first" if seed % 3 else "the_second", seed, seed / 2, seed + 1, seed + 2)
        for seed, is_caught in enumerate(caught)
    ]


@pytest.mark.parametrize(
    ("caught", "found"),
    [
        pytest.param([True] * 10, True, id="all"),
        pytest.param([True] * 9 + [False], True, id="nine-of-ten"),
        pytest.param([True] * 8 + [False] * 2, False, id="eight-of-ten"),
        pytest.param([True, True, False], False, id="two-of-three"),
    ],
)
def test_a_mutant_is_found_when_nine_seeds_of_ten_catch_it(caught, found):
    assert Score(MUTANT, hunts(*caught)).is_found is found


def test_figures_are_medians_over_the_seeds_that_caught_it():
    """And the invariant is the one that told of it most often."""
    score = Score(MUTANT, hunts(False, True, True, True, False))

    assert score.figures() == {
        "id": "B14",
        "source": MUTANT.source,
        "found": False,
        "invariant": "the_first",
        "seeds_found": 3,
        "seeds": 5,
        "found_cpu_seconds": 2,
        "shrink_cpu_seconds": 1.0,
        "ops": 3,
        "engine_steps": 4,
    }


def test_what_nobody_caught_has_no_figures():
    figures = Score(MUTANT, hunts(False)).figures()

    assert [figures[name] for name in ("invariant", "found_cpu_seconds", "ops")] == [None, None, None]
