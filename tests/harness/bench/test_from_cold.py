"""A search from a cold start, beside a machine that a user writes by hand."""

import pytest

from swarden.harness.bench.from_cold import measure
from swarden.harness.engines.demo.mutants import MUTANTS
from swarden.harness.search.mutants.searches import Scope, SearchJob, SearchOutcome, searched


@pytest.mark.parametrize(
    ("mutant", "is_found"), [("freed-twice-at-the-border", True), ("no-such-mutant", False)], ids=["bug", "no bug"]
)
def test_only_a_failure_of_the_machine_is_a_finding(mutant, is_found):
    """Both search in cold processes, with the CPU seconds of the imports; a missing mutant ends both with an error."""
    searches, ratio = (case.figures for case in measure([mutant], seeds=[1]))

    by_hand, ours = searches["by hand"], searches["swarden"]
    assert ours["found"] == by_hand["found"] == is_found
    assert ours["CPU s"] > 0.1 < by_hand["CPU s"]
    assert ratio["ratio"] == pytest.approx(by_hand["CPU s"] / ours["CPU s"], abs=0.02)


@pytest.mark.parametrize("mutant", MUTANTS.all, ids=lambda mutant: mutant.id)
def test_traffic_finds_each_bug(mutant, tmp_path):
    """A law that the bug names finds it; the engine's own leak is fixed in each of them."""
    assert searched(SearchJob(mutant, 6), Scope("demo", 1, 20.0, tmp_path)).outcome is SearchOutcome.FOUND
