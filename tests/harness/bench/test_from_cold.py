"""A search from a cold start, beside a machine that a user writes by hand."""

import pytest

from swarden.harness.bench.from_cold import Search, SearchPair, figures, measure, text
from swarden.harness.engines.demo.mutants import MUTANTS
from swarden.harness.search.mutants.searches import Scope, SearchJob, SearchOutcome, searched


def test_both_find_a_bug_from_cold_processes():
    """Both searches end with a finding, and their CPU seconds have those of the imports."""
    [duel] = measure(["freed-twice-at-the-border"], seeds=[1])

    assert duel.ours.is_found
    assert duel.by_hand.is_found
    assert duel.ours.seconds > 0.1 < duel.by_hand.seconds


def test_search_that_ends_with_another_error_has_found_nothing():
    """A mutant that does not exist ends both searches with an error, which is no failure of the machine."""
    [duel] = measure(["no-such-mutant"], seeds=[1])

    assert not duel.ours.is_found
    assert not duel.by_hand.is_found


def test_figures_are_geometric_means():
    """The mean of the ratios 2 and 8 is 4."""
    pairs = [
        SearchPair("a", 1, Search(1.0, True), Search(2.0, True)),
        SearchPair("a", 2, Search(1.0, True), Search(8.0, False)),
    ]

    assert figures(pairs)["from_cold_ratio"] == 4
    assert text(pairs).splitlines()[1] == "a: 4.0 s, found 1 of 2 / 1.0 s, found 2 of 2"


@pytest.mark.parametrize("mutant", MUTANTS.all, ids=lambda mutant: mutant.id)
def test_traffic_finds_each_bug(mutant, tmp_path):
    """A law that the bug names finds it; the engine's own leak is fixed in each of them."""
    assert searched(SearchJob(mutant, 1), Scope("demo", 1, 20.0, tmp_path)).outcome is SearchOutcome.FOUND
