"""Equivalent mutations are recognized, and their unchanged lines are in the code."""

import pytest

from tests.quality.mutation.__main__ import ROOT
from tests.quality.mutation.equivalent import EQUIVALENTS, Equivalent, why_equivalent
from tests.quality.mutation.mutation import Mutation


def mutation_of(one: Equivalent, line: int) -> Mutation:
    path, place = one.place.split(" ", 1)
    diff = "\n".join(f"{text[0]}        {text[2:]}" for text in one.changed)
    return Mutation(path, place, "core/AddNot", line, diff, "")


@pytest.mark.parametrize("one", EQUIVALENTS, ids=lambda one: one.place)
def test_equivalent_mutation_is_recognized_at_any_line_number(one):
    assert why_equivalent(mutation_of(one, 7)) == why_equivalent(mutation_of(one, 90)) == one.why


@pytest.mark.parametrize("one", EQUIVALENTS, ids=lambda one: one.place)
def test_removed_lines_of_an_equivalent_are_in_the_code(one):
    """An entry whose lines have changed is stale and must be updated."""
    lines = {line.strip() for line in (ROOT / one.place.split(" ")[0]).read_text().splitlines()}

    assert {text[2:] for text in one.changed if text.startswith("- ")} <= lines


def test_other_change_in_the_same_place_is_not_equivalent():
    other = Mutation("engine_under_test/cache/locks.py", "LockReceipt", "core/AddNot", 7, "-a\n+b", "")

    assert why_equivalent(other) is None
