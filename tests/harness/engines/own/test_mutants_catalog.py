"""The catalogue of bugs: it is complete, and its entries match the code."""

from operator import attrgetter

import pytest

from swarden.harness.core.mutant_file import check_mutant
from swarden.harness.core.registry import OWN, target_of
from swarden.harness.engines.own.mutants.catalog import BUGS, CATALOG
from swarden.harness.search.mutants.unplanted import Excluded
from tests.invariants.test_invariants import CASES

# The published bugs of serving engines, by part: pools, tree, scheduler, host tier, sessions, disaggregation, checkers.
PUBLISHED = """
    B1 B3 B4 B7 B8 B10 B11 B13
    B14 B16 B18 B20 B21 B23 B24 B26 B27 B29
    B30 B31 B32 B34 B35 B36 B37 B38 B39 B42 B43 B45 B46 B48 B49
    B51 B53 B54 B55 B57 B58
    B61 B62 B63 B64 B65 B67 B69 B71
    B72 B73 B75 B77 B78 B80
    B82 B83 B84 B85 B86 B87 B88 B89
"""
EXCLUDED = [bug for bug in BUGS if isinstance(bug, Excluded)]


def test_catalogue_has_every_published_bug():
    """The published bugs are in the order of their numbers, before our own bugs."""
    published = [bug.id for bug in BUGS if bug.id.startswith("B")]

    assert published == sorted(PUBLISHED.split(), key=lambda name: int(name[1:]))


@pytest.mark.parametrize("mutant", CATALOG, ids=attrgetter("id"))
def test_mutant_matches_the_code_and_names_existing_laws(mutant):
    check_mutant(target_of(OWN), mutant)


@pytest.mark.parametrize("row", EXCLUDED, ids=attrgetter("id"))
def test_excluded_entry_has_a_case_with_a_violation(row):
    """Another engine can have the bug, so a case must show that a law detects it."""
    shown = [case for case in CASES if (case.invariant.name, case.name) == (row.invariant, row.case)]

    assert [bool(case.evidence) for case in shown] == [True]


def test_sources_are_unique():
    sources = [bug.source for bug in BUGS]

    assert len(sources) == len(set(sources))
