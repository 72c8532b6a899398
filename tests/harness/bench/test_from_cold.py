"""A search from a cold start, beside a machine that a user writes by hand."""

import pytest

from swarden.harness.bench.from_cold import measure
from swarden.harness.bench.timing import merged
from swarden.harness.engines.demo.mutants import MUTANTS
from swarden.harness.search.mutants.searches import Scope, SearchJob, SearchOutcome, searched


@pytest.mark.parametrize(
    ("mutant", "is_found"), [("freed-twice-at-the-border", True), ("no-such-mutant", False)], ids=["bug", "no bug"]
)
def test_only_a_failure_of_the_machine_is_a_finding(mutant, is_found):
    """Both search in cold processes, with the CPU seconds of the imports; a missing mutant ends both with an error."""
    figures = merged(measure([mutant], seeds=[1]))

    [search] = figures["from_cold"]
    assert search["ours"].is_found is search["by_hand"].is_found is is_found
    assert search["ours"].seconds > 0.1 < search["by_hand"].seconds
    assert figures["from_cold_ratio"] == pytest.approx(search["by_hand"].seconds / search["ours"].seconds, abs=0.01)


@pytest.mark.parametrize("mutant", MUTANTS.all, ids=lambda mutant: mutant.id)
def test_traffic_finds_each_bug(mutant, tmp_path):
    """A law that the bug names finds it; the engine's own leak is fixed in each of them."""
    assert searched(SearchJob(mutant, 6), Scope("demo", 1, 20.0, tmp_path)).outcome is SearchOutcome.FOUND
