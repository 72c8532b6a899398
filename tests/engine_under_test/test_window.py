"""The formulas of the window, at the numbers of known bugs."""

import pytest

from swarden.engine_under_test.components import kept_len, tail_len, window_frontier


@pytest.mark.parametrize(
    ("window", "page_size", "position", "frontier"),
    [
        pytest.param(128, 64, 1023, 832, id="window of two pages"),
        pytest.param(33, 64, 127, 0, id="page larger than window: in the second page"),
        pytest.param(33, 64, 159, 64, id="page larger than window: in the third page"),
        pytest.param(33, 64, 160, 64, id="page larger than window: the last publishable page stays"),
        pytest.param(33, 64, 192, 128, id="page larger than window: one page later"),
        pytest.param(6, 4, 0, 0, id="nothing computed"),
        pytest.param(6, 4, 8, 0, id="exactly a window"),
        pytest.param(6, 4, 11, 0, id="inside a page"),
        pytest.param(6, 4, 12, 4, id="a page is dead"),
        pytest.param(2, 1, 5, 4, id="pages of a token, window of two"),
    ],
)
def test_the_frontier_leaves_a_window_in_whole_pages(window, page_size, position, frontier):
    assert window_frontier(position, window=window, page_size=page_size) == frontier


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
