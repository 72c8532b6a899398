"""A row holds page handles by position, up to its width."""

import pytest

from swarden.engine_under_test.pools.ledger import Ledger
from swarden.engine_under_test.pools.memory import RequestTable


def table() -> RequestTable:
    return RequestTable(Ledger("rows", 2, reuse="lifo"), width=4)


def test_row_returns_the_written_handles():
    rows = table()
    rows.write(1, 0, [7, 8])
    rows.write(1, 2, [9])

    assert list(rows.read(1, 1, 3)) == [8, 9]


def test_write_does_not_change_another_row():
    rows = table()
    rows.write(1, 0, [7, 8, 9, 10])

    rows.write(2, 0, [1, 2, 3, 4])

    assert list(rows.read(1, 0, 4)) == [7, 8, 9, 10]


def test_write_beyond_the_width_raises():
    with pytest.raises(AssertionError) as caught:
        table().write(1, 3, [7, 8])

    assert str(caught.value).splitlines()[0] == "row 1: 3 + 2 pages do not fit in a width of 4"
