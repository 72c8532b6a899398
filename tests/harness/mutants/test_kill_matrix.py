"""The matrix as a value, and its page."""

from pathlib import Path

import pytest

from harness.core.oplog import OpLog
from harness.engines.own.mutants.catalog import ROWS
from harness.mutants.kill_matrix import KillMatrix, page
from harness.mutants.unplanted import Waiting
from harness.mutants.verdict import speakers
from invariants.catalog import ALL

OPLOGS = Path(__file__).parents[2] / "quality" / "oplogs"
NAMES = [invariant.name for invariant in ALL.invariants]


@pytest.fixture
def matrix():
    """Every bug is told of by an invariant of its own, as far as there are enough, and the first by an error too."""
    bugs = [row.id for row in ROWS if not isinstance(row, Waiting)]
    told = {bug: [NAMES[place % len(NAMES)]] for place, bug in enumerate(bugs)}
    return KillMatrix(ROWS, told | {bugs[0]: [NAMES[0], "SomeError"]})


def test_the_rows_are_the_invariants_in_their_order_and_then_the_errors(matrix):
    assert matrix.speakers == [*NAMES, "SomeError"]


def test_the_matrix_says_who_tells_of_whom(matrix):
    assert matrix.told_of_by("SomeError") == [matrix.mutants[0]]
    assert matrix.told_of_by(NAMES[1])[0] == matrix.mutants[1]


def test_the_page_has_a_line_of_marks_for_every_row(matrix):
    """As many marks as there are bugs; the first row tells of the first bug."""
    lines = page(matrix).split("```")[1].splitlines()
    marks = dict(line.split() for line in lines if len(line.split()) == 2 and line.split()[0] in matrix.speakers)

    assert list(marks) == matrix.speakers
    assert {len(row) for row in marks.values()} == {len(matrix.mutants)}
    assert marks["SomeError"] == "#" + "." * (len(matrix.mutants) - 1)


def test_the_page_tells_what_every_bug_is(matrix):
    text = page(matrix)

    assert [row.id for row in ROWS if f"| {row.id} | {row.source} " not in text] == []


def test_nobody_speaks_where_an_op_log_passes():
    log = OpLog.load(OPLOGS / "B14.oplog")

    assert speakers(log, None) == []
    assert speakers(log, "B14") != []
