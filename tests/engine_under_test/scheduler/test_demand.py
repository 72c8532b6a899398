"""What a request needs of each pool, at the numbers that once went wrong, and the book of a step."""

import pytest

from engine_under_test.config import PoolSpec
from engine_under_test.scheduler.demand import (
    Book,
    Demand,
    Extent,
    chunk_room,
    demand_of,
    fitting_end,
    pages_between,
    windowed_demand_len,
)
from tests.engine_under_test.builders import CacheBench

FULL, SWA = PoolSpec("full", 64, None), PoolSpec("swa", 32, 17)


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
    ("extent", "length"),
    [
        pytest.param(Extent(0, 32, 100, 10), 36, id="a chunk of two windows"),
        pytest.param(Extent(0, 3, 3, 5), 12, id="a short resume is not charged a whole window"),
        pytest.param(Extent(96, 100, 100, 0), 8, id="the end of a prompt"),
        pytest.param(Extent(0, 16, 100, 10), 20, id="a chunk of just a window"),
    ],
)
def test_a_windowed_pool_must_hold_a_chunk_beyond_the_window_the_window_and_a_page(extent, length):
    assert windowed_demand_len(extent, 17, 4) == length


@pytest.mark.parametrize(
    ("extent", "ratio", "firm", "total"),
    [
        pytest.param(Extent(0, 32, 100, 10), 0.0, 8, {"full": 25, "swa": 9}, id="the rest of the prompt counts"),
        pytest.param(Extent(0, 32, 100, 10), 1.0, 8, {"full": 28, "swa": 9}, id="so does all of the output"),
        pytest.param(Extent(0, 32, 100, 10), 0.35, 8, {"full": 26, "swa": 9}, id="or the share that is expected"),
        pytest.param(Extent(18, 20, 20, 0), 1.0, 0, {"full": 0, "swa": 2}, id="inside a begun page"),
        pytest.param(Extent(0, 64, 64, 0), 1.0, 16, {"full": 16, "swa": 17}, id="a whole prompt"),
    ],
)
def test_firm_pages_are_exact_and_the_estimate_comes_on_top(extent, ratio, firm, total):
    demand = demand_of(extent, (FULL, SWA), page_size=4, ratio=ratio)

    assert (demand.firm, demand.total) == ({"full": firm, "swa": firm}, total)


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


@pytest.mark.parametrize(
    ("available", "slack", "reserve", "room"),
    [
        pytest.param(1, 36, 1, 36, id="100 tokens less a page"),
        pytest.param(1, 0, 1, 0, id="64 tokens less a page: parked"),
        pytest.param(0, 36, 1, -28, id="less than a page"),
        pytest.param(1, 36, 0, 100, id="nothing in reserve"),
    ],
)
def test_a_chunk_leaves_its_reserve(available, slack, reserve, room):
    assert chunk_room(available, slack=slack, page_size=64, reserve=reserve) == room


def book_over(bench: CacheBench) -> Book:
    return Book(bench.memory.ledgers.ledgers, bench.cache, budget=16, ratio=1.0)


def test_the_room_of_a_pool_is_what_is_free_or_evictable():
    bench = CacheBench()
    bench.cached(list(range(20)))
    bench.compute(bench.start([1, 2, 3]), 3)

    book = book_over(bench)

    assert (book.room("full"), book.room("swa")) == (15, 11)


def test_a_reservation_takes_from_the_room_until_it_is_consumed():
    book = book_over(CacheBench())
    firm = {"full": 3, "swa": 2}
    book.reserve(Demand(firm, firm))
    reserved = (book.room("full"), book.room("swa"))

    book.consume(firm)

    assert (reserved, (book.room("full"), book.room("swa"))) == ((13, 10), (16, 12))


def test_a_lock_takes_from_the_room():
    bench = CacheBench()
    bench.cached(list(range(20)))
    book = book_over(bench)

    bench.start(list(range(21)))

    assert (book.room("full"), book.room("swa")) == (11, 10)


def test_what_was_estimated_beyond_a_reservation_counts_for_whoever_asks_next():
    book = book_over(CacheBench())

    book.reserve(Demand({"full": 3, "swa": 2}, {"full": 9, "swa": 4}))

    assert (book.room("full"), book.estimated) == (13, {"full": 6, "swa": 2})


@pytest.mark.parametrize(
    ("need", "locked", "growth", "fits"),
    [
        pytest.param(12, 0, 0, True, id="just fits"),
        pytest.param(13, 0, 0, False, id="a page too many"),
        pytest.param(10, 2, 0, True, id="with what is locked for it"),
        pytest.param(10, 3, 0, False, id="what is locked for it is too much"),
        pytest.param(10, 0, 2, True, id="with what runs growing"),
        pytest.param(10, 1, 2, False, id="what runs grows too much"),
    ],
)
def test_a_need_fits_beside_what_is_locked_for_it_and_what_runs(need, locked, growth, fits):
    book = book_over(CacheBench())
    book.estimated["swa"] = growth

    assert book.fits({"full": 0, "swa": need}, besides={"full": 0, "swa": locked}) is fits
