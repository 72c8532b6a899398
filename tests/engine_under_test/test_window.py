"""The formulas of the window, at the numbers of known bugs."""

import pytest

from swarden.engine_under_test.components import kept_len, tail_len, window_frontier


@pytest.mark.parametrize("page_size", [1, 2, 4, 16])
@pytest.mark.parametrize("window", [2, 4, 5, 8, 17])
@pytest.mark.parametrize("position", [0, 1, 7, 16, 33, 160])
def test_frontier_keeps_the_window_and_the_last_published_page(page_size, window, position):
    frontier = window_frontier(position, window=window, page_size=page_size)
    first_read = max(0, position - (window - 1))
    last_published_page = max(0, position // page_size * page_size - page_size)

    assert frontier <= min(first_read, last_published_page)


@pytest.mark.parametrize(
    ("window", "page_size", "length"),
    [
        pytest.param(128, 64, 128, id="not a multiple of the page"),
        pytest.param(129, 64, 128, id="a multiple of the page"),
        pytest.param(33, 64, 64, id="less than a page"),
        pytest.param(2, 1, 1, id="smallest window"),
    ],
)
def test_window_and_tail_are_counted_in_whole_pages(window, page_size, length):
    assert kept_len(window=window, page_size=page_size) == tail_len(window=window, page_size=page_size) == length
