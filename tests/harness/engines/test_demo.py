"""The bugs of the demo's engine."""

import pytest

from swarden.harness.engines.demo.mutants import MUTANTS
from swarden.harness.search.mutants.searches import Scope, SearchJob, SearchOutcome, searched


@pytest.mark.parametrize("mutant", MUTANTS.all, ids=lambda mutant: mutant.id)
def test_traffic_finds_each_bug(mutant, tmp_path):
    """A law that the bug names finds it; the engine's own leak is fixed in each of them."""
    assert searched(SearchJob(mutant, 6), Scope("demo", 1, 20.0, tmp_path)).outcome is SearchOutcome.FOUND
