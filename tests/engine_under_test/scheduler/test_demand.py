"""The demand of a request in each pool, at the numbers of known bugs, and the reservations of a step."""

from dataclasses import replace

import pytest

from swarden.engine_under_test.components import Extent, FullAttention, SlidingWindow
from swarden.engine_under_test.scheduler.demand import (
    Budget,
    Demand,
    Held,
    demand_of,
    fitting_end,
    growth_of,
)
from swarden.engine_under_test.units import align_down, num_pages, pages_between
from tests.engine_under_test.builders import CacheBench

FULL, SWA = FullAttention("full", 64, 4), SlidingWindow("swa", 32, 4, 17)


@pytest.mark.parametrize(
    ("start", "end", "pages"),
    [
        pytest.param(6, 17, 3, id="the rest of a page, two pages and a token"),
        pytest.param(8, 9, 1, id="the first token of a page"),
        pytest.param(9, 10, 0, id="the second token of a page"),
        pytest.param(0, 8, 2, id="whole pages"),
        pytest.param(5, 5, 0, id="nothing"),
    ],
)
def test_a_begun_page_is_not_taken_again(start, end, pages):
    assert pages_between(start, end, 4) == pages


@pytest.mark.parametrize(
    ("extent", "ratio", "firm", "total"),
    [
        pytest.param(Extent(0, 32, 100, 10), 0.0, 8, {"full": 25, "swa": 9}, id="the rest of the prompt counts"),
        pytest.param(Extent(0, 3, 3, 5), 1.0, 1, {"full": 2, "swa": 3}, id="a short resume is not charged a window"),
        pytest.param(Extent(0, 32, 100, 10, 9), 0.35, 8, {"full": 28, "swa": 12}, id="the whole lookahead counts"),
        pytest.param(Extent(0, 32, 100, 10), 1.0, 8, {"full": 28, "swa": 9}, id="the whole output counts"),
        pytest.param(
            Extent(0, 32, 100, 10), 0.35, 8, {"full": 26, "swa": 9}, id="the expected share of the output counts"
        ),
        pytest.param(Extent(18, 20, 20, 0), 1.0, 0, {"full": 0, "swa": 2}, id="inside a begun page"),
        pytest.param(Extent(0, 64, 64, 0), 1.0, 16, {"full": 16, "swa": 17}, id="a whole prompt"),
    ],
)
def test_firm_pages_are_exact_and_the_estimate_comes_on_top(extent, ratio, firm, total):
    demand = demand_of(extent, (FULL, SWA), ratio=ratio)

    assert (demand.firm, demand.total) == ({"full": firm, "swa": firm}, total)


@pytest.mark.parametrize(
    ("held", "new_len", "lookahead", "firm", "total"),
    [
        pytest.param(Held(8, 8, (0, 0)), 9, 0, 1, {"full": 3, "swa": 3}, id="a page for the next token"),
        pytest.param(Held(9, 9, (0, 0)), 9, 0, 0, {"full": 2, "swa": 2}, id="a begun page"),
        pytest.param(Held(9, 9, (0, 0)), 1, 0, 0, {"full": 0, "swa": 0}, id="the last token in a begun page"),
        pytest.param(Held(40, 40, (0, 24)), 40, 0, 1, {"full": 10, "swa": 1}, id="a window grows by at most a page"),
        pytest.param(Held(40, 40, (0, 40)), 40, 0, 1, {"full": 10, "swa": 5}, id="a window without private pages"),
        pytest.param(Held(8, 8, (0, 0)), 9, 4, 2, {"full": 4, "swa": 4}, id="capacity for the lookahead"),
        pytest.param(Held(9, 13, (0, 0)), 9, 4, 0, {"full": 2, "swa": 2}, id="most of the lookahead is there"),
        pytest.param(Held(40, 44, (0, 24)), 40, 4, 1, {"full": 10, "swa": 1}, id="a window and the lookahead"),
    ],
)
def test_growth_of_a_running_request_is_bounded_by_its_window(held, new_len, lookahead, firm, total):
    demand = growth_of(held, new_len, (FULL, SWA), page_size=4, lookahead=lookahead)

    assert (demand.firm, demand.total) == ({"full": firm, "swa": firm}, total)


@pytest.mark.parametrize("lookahead", [0, 1, 4, 9])
@pytest.mark.parametrize("capacity", [12, 16])
@pytest.mark.parametrize("start", [0, 4, 40])
def test_longest_chunk_is_the_longest_that_the_pool_can_hold(start, capacity, lookahead):
    """The pool also holds the window that the match has locked."""
    extent = Extent(start, 100, 100, 10, lookahead)
    pool = SlidingWindow("swa", capacity, 4, 17)
    longest = align_down(pool.longest_chunk(extent), 4)

    free = capacity - num_pages(min(start, 16), 4)
    fitting = [
        length
        for length in range(4, 101 - start, 4)
        if pool.demand(replace(extent, end=start + length), ratio=1.0) <= free
    ]
    assert min(longest, 100 - start) == max(fitting)


@pytest.mark.parametrize(
    ("start", "input_len", "most", "end"),
    [
        pytest.param(0, 10, 16, 10, id="with the input"),
        pytest.param(0, 10, 10, 10, id="just with the input"),
        pytest.param(0, 30, 16, 16, id="on a page boundary"),
        pytest.param(0, 30, 15, 12, id="on the last boundary that is passed"),
        pytest.param(4, 30, 3, 7, id="inside a page if no boundary is passed"),
        pytest.param(6, 30, 3, 8, id="on the boundary behind a begun page"),
    ],
)
def test_a_chunk_ends_with_the_input_or_on_a_page_boundary(start, input_len, most, end):
    assert fitting_end(start, input_len, most=most, page_size=4) == end


def budget_over(bench: CacheBench) -> Budget:
    return Budget(bench.memory.ledgers.ledgers, bench.cache, tokens=16, ratio=1.0)


def test_available_pages_are_free_or_evictable():
    bench = CacheBench()
    bench.insert(list(range(20)))
    bench.compute(bench.start([1, 2, 3]), 3)

    budget = budget_over(bench)

    assert (budget.available("full"), budget.available("swa")) == (15, 11)


def test_estimate_beyond_a_reservation_counts_against_later_requests():
    budget = budget_over(CacheBench())

    budget.reserve(Demand({"full": 3, "swa": 2}, {"full": 9, "swa": 4}))

    assert (budget.available("full"), budget.estimated) == (13, {"full": 6, "swa": 2})


def test_overdrawn_book_fits_no_need():
    budget = budget_over(CacheBench())
    budget.reserve(Demand({"full": 3, "swa": 13}, {"full": 3, "swa": 13}))

    assert (budget.available("swa"), budget.fits({"full": 0, "swa": 0}, besides={"full": 0, "swa": 0})) == (-1, False)


def test_book_returns_the_missing_pages_by_pool():
    budget = budget_over(CacheBench())
    budget.estimated["swa"] = 2

    assert budget.lacks({"full": 16, "swa": 12}, besides={"full": 0, "swa": 1}) == {"swa": 3}


@pytest.mark.parametrize(
    ("need", "locked", "growth", "fits"),
    [
        pytest.param(12, 0, 0, True, id="just fits"),
        pytest.param(13, 0, 0, False, id="a page too many"),
        pytest.param(10, 2, 0, True, id="fits beside its locks"),
        pytest.param(10, 3, 0, False, id="locks are too many"),
        pytest.param(10, 0, 2, True, id="fits beside the estimated growth"),
        pytest.param(10, 1, 2, False, id="growth is too much"),
    ],
)
def test_need_fits_beside_its_locks_and_estimated_growth(need, locked, growth, fits):
    budget = budget_over(CacheBench())
    budget.estimated["swa"] = growth

    assert budget.fits({"full": 0, "swa": need}, besides={"full": 0, "swa": locked}) is fits
