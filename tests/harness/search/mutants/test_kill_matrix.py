"""The kill matrix and its page."""

from pathlib import Path

import pytest

from swarden.harness.core.admission import load_log
from swarden.harness.engines.own.mutants.catalog import BUGS
from swarden.harness.search.mutants.kill_matrix import KillMatrix, page, violated_laws
from swarden.invariants.catalog import ALL

OPLOGS = Path(__file__).parents[3] / "quality" / "oplogs"
NAMES = [invariant.name for invariant in ALL.invariants]


@pytest.fixture
def matrix():
    """One invariant detects each bug, in rotation; an error detects the first bug too."""
    bugs = [bug.id for bug in BUGS]
    laws = {bug: [NAMES[index % len(NAMES)]] for index, bug in enumerate(bugs)}
    return KillMatrix(BUGS, laws | {bugs[0]: [NAMES[0], "SomeError"]})


def test_matrix_lists_the_mutants_that_a_law_detects(matrix):
    assert matrix.mutants_detected_by("SomeError") == [matrix.mutants[0]]
    assert matrix.mutants_detected_by(NAMES[1])[0] == matrix.mutants[1]


def test_page_has_a_line_of_marks_for_every_law(matrix):
    """Each line has one mark for each bug; the error detects the first bug only."""
    lines = page(matrix).split("```")[1].splitlines()
    marks = dict(line.split() for line in lines if len(line.split()) == 2 and line.split()[0] in matrix.laws)

    assert list(marks) == matrix.laws
    assert {len(row) for row in marks.values()} == {len(matrix.mutants)}
    assert marks["SomeError"] == "#" + "." * (len(matrix.mutants) - 1)


def test_page_describes_every_bug(matrix):
    text = page(matrix)

    assert [bug.id for bug in BUGS if f"| {bug.id} | {bug.source} " not in text] == []


def test_op_log_without_its_bug_violates_no_law():
    log = load_log(OPLOGS / "B14.oplog")

    assert violated_laws(log, None) == []
    assert violated_laws(log, "B14") != []
