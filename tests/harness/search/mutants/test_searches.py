"""Scores over seeds: the share of seeds that must find a mutant, and the figures of a score."""

from pathlib import Path

import pytest

from swarden.harness.core.admission import load_log
from swarden.harness.core.mutant_file import mutants_of_environment
from swarden.harness.core.registry import OWN, target_of
from swarden.harness.engines.own.mutants.catalog import BY_ID
from swarden.harness.search.mutants.searches import (
    Scope,
    Score,
    SearchJob,
    SearchOutcome,
    SearchResult,
    searched,
    searches,
)

MADE_UP = """
from swarden.harness.core.mutant import Hunk, Mutant

CHANGE = Hunk("swarden.engine_under_test.components:kept_len", "return ", "{}\\n    return ")
MADE_UP = Mutant("made-up", "made up", (CHANGE,), ("stuck",))
"""
MUTANT = BY_ID["B14"]
FOUND, BY_ANOTHER, MISSED = SearchOutcome.FOUND, SearchOutcome.BY_ANOTHER, SearchOutcome.MISSED


def score(*outcomes, seeds=None):
    """The result of one search for each seed; seed n needs n seconds, n + 1 ops and ten runs."""
    searches = [
        SearchResult(
            mutant="B14",
            seed=seed,
            outcome=outcome,
            law="the_first" if seed % 3 else "the_second",
            runs=10,
            search_cpu_seconds=seed,
            shrink_cpu_seconds=seed / 2,
            ops=seed + 1,
            engine_steps=seed + 2,
        )
        for seed, outcome in enumerate(outcomes)
    ]
    return Score(MUTANT, seeds or len(searches), searches)


@pytest.mark.parametrize(
    ("one", "is_found", "text"),
    [
        pytest.param(score(*[FOUND] * 10), True, "found 10 of 10", id="all"),
        pytest.param(score(*[FOUND] * 9, MISSED), True, "found 9 of 10", id="nine-of-ten"),
        pytest.param(score(FOUND, FOUND, MISSED), False, "found 2 of 3", id="two-of-three"),
        pytest.param(score(FOUND, FOUND, BY_ANOTHER), False, "found 2 of 3, found by another law 1 of 3", id="by-both"),
        pytest.param(score(BY_ANOTHER, MISSED), False, "found by another law 1 of 2", id="by-another"),
        pytest.param(score(MISSED, MISSED), False, "missed", id="missed"),
        pytest.param(score(FOUND, seeds=3), False, "found 1 of 3", id="interrupted"),
        pytest.param(score(seeds=3), False, "not searched for", id="not-searched"),
    ],
)
def test_mutant_is_found_if_nine_of_ten_seeds_find_it_by_a_law_of_its_list(one, is_found, text):
    assert (one.is_found, str(one)) == (is_found, text)


def test_figures_are_sums_over_all_searches_and_medians_over_those_that_found_it():
    """The invariant is the law that found the bug most often; the last figure lists every search."""
    figures = score(MISSED, FOUND, FOUND, FOUND, BY_ANOTHER).figures()
    searches = figures.pop("searches")

    assert figures == {
        "id": "B14",
        "source": MUTANT.source,
        "found": False,
        "invariant": "the_first",
        "seeds_found": 3,
        "seeds_found_by_another": 1,
        "seeds": 5,
        "runs": 50,
        "cpu_seconds": 15.0,
        "found_cpu_seconds": 2,
        "shrink_cpu_seconds": 1.0,
        "ops": 3,
        "engine_steps": 4,
    }
    assert [(search["seed"], search["outcome"], search["law"]) for search in searches[3:]] == [
        (3, "found", "the_second"),
        (4, "found by another law", "the_first"),
    ]


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_endless_step_is_found_within_the_hang_timeout(tmp_path, monkeypatch):
    """The result has the seconds until the process ended, and the op-log of the run that hung."""
    path = tmp_path / "own.py"
    path.write_text(MADE_UP.format("while True: pass"))
    monkeypatch.setenv("SWARDEN_MUTANTS", str(path))

    [one] = searches(
        [mutants_of_environment(target_of(OWN))["made-up"]], Scope(OWN, 1, 60, tmp_path, hang_seconds=1.5), workers=1
    )

    assert (one.outcome, one.law) == (BY_ANOTHER, "worker stopped answering")
    assert one.search_cpu_seconds > 0
    log = load_log(Path(one.path))
    assert (log.header.mutant, list(tmp_path.rglob("*.oplog"))) == ("made-up", [Path(one.path)])
    assert log.ops


def test_failure_that_the_engine_has_without_the_mutant_is_not_taken_for_it(tmp_path, monkeypatch):
    """A release has bugs of its own, which random traffic finds too."""
    path = tmp_path / "own.py"
    path.write_text(MADE_UP.format("pass"))
    monkeypatch.setenv("SWARDEN_MUTANTS", str(path))
    harmless = mutants_of_environment(target_of(OWN))["made-up"]

    with BY_ID["B1"].planted():
        one = searched(SearchJob(harmless, 0), Scope(OWN, 1, 3, tmp_path))

    assert one.outcome is MISSED
    assert one.runs > 0
