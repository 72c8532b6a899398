"""KV records grow, slide and are released, and lose no page."""

from dataclasses import replace

import pytest

from swarden.engine_under_test.cache.record import KVRecord
from swarden.engine_under_test.errors import PoolExhausted
from swarden.invariants.events import Slid
from tests.engine_under_test.builders import HYBRID, CacheBench, all_pages, hold

KEY = list(range(100, 140))


@pytest.mark.parametrize("end", [5, 8], ids=["a begun page", "whole pages"])
def test_growth_takes_whole_pages_in_every_pool(end):
    bench = CacheBench()
    request = bench.start(KEY)

    for length in (5, end):
        bench.compute(request, length)

    assert bench.free == {"full": 14, "swa": 10}


def test_growth_evicts_unlocked_pages():
    bench = CacheBench()
    bench.insert(KEY[:20])
    request = bench.start(KEY[20:])
    hold(bench.memory, "swa", leaving=1)

    bench.compute(request, 12)

    assert (bench.free["swa"], bench.evictable["swa"]) == (1, 2)


def test_growth_beyond_the_pools_takes_nothing():
    bench = CacheBench()
    request = bench.start(KEY)
    hold(bench.memory, "swa", leaving=2)

    with pytest.raises(PoolExhausted) as caught:
        bench.compute(request, 12)

    record = bench.custody.record(request)
    assert (str(caught.value), record.allocated_len, bench.free) == (
        "swa: want 3, 2 free",
        0,
        {"full": 16, "swa": 2},
    )


@pytest.mark.parametrize(
    ("need", "short"),
    [
        pytest.param({"full": 16, "swa": 12}, {}, id="all that is free or evictable"),
        pytest.param({"full": 16, "swa": 14}, {"swa": 2}, id="more than one pool has"),
        pytest.param({"full": 17, "swa": 14}, {"full": 1, "swa": 2}, id="more than both have"),
    ],
)
def test_eviction_returns_the_missing_pages(need, short):
    bench = CacheBench()
    bench.insert(KEY[:20])

    assert bench.custody.evict(need) == short


def test_a_slide_frees_the_private_pages_below_the_frontier():
    bench = CacheBench()
    request = bench.start(KEY)
    bench.compute(request, 21)

    bench.slide(request)

    assert (bench.free, bench.log.of(Slid)) == ({"full": 10, "swa": 9}, [Slid(request.id, 0, 12, "swa")])


def test_slide_over_shared_pages_unlocks_them():
    bench = CacheBench()
    bench.insert(KEY[:16])
    request = bench.start(KEY)
    bench.compute(request, 28)

    bench.slide(request)

    assert (bench.evictable, bench.free) == ({"full": 0, "swa": 4}, {"full": 9, "swa": 6})


@pytest.mark.parametrize(
    ("interval", "frontier"),
    [
        pytest.param(1, 12, id="at every page"),
        pytest.param(12, 12, id="just reached"),
        pytest.param(13, 0, id="not reached"),
    ],
)
def test_a_window_slides_once_it_is_due(interval, frontier):
    bench = CacheBench()
    request = bench.start(KEY)
    bench.compute(request, 21)

    bench.custody.slide_windows([request], interval=interval)

    assert bench.custody.record(request).frontier("swa") == frontier


@pytest.mark.parametrize("window", [2, 6, 9, 17], ids="window {}".format)
@pytest.mark.parametrize("end", [1, 4, 13, 30], ids="{} tokens".format)
def test_release_frees_everything(window, end):
    config = replace(HYBRID, sliding_window=window)
    bench = CacheBench(config)
    request = bench.start(KEY)
    for length in range(1, end + 1):
        bench.compute(request, length)
        bench.slide(request)

    bench.leave(request)

    assert (bench.free, bench.memory.table.rows.num_free) == (all_pages(config), 4)


def test_a_request_holds_one_record():
    bench = CacheBench()
    request = bench.start(KEY)

    with pytest.raises(AssertionError) as caught:
        bench.custody.open(request, bench.custody.record(request))

    assert str(caught.value).splitlines()[0] == "request 1 has a record already"


def test_a_release_behind_a_pass_in_flight_waits_for_it():
    bench = CacheBench()
    bench.insert(KEY[:16])
    request = bench.start(KEY)
    bench.compute(request, 21)
    bench.custody.record(request).last_launch = 3

    bench.leave(request)

    fenced = [(ledger.name, list(ledger.fenced_units)) for ledger in bench.memory.ledgers.ledgers]
    assert (fenced, bench.evictable, [one.launch for one in bench.custody.departures.waiting]) == (
        [("full", [3]), ("swa", [3])],
        {"full": 0, "swa": 2},
        [3],
    )


@pytest.mark.parametrize(
    ("launch", "departing", "evictable"),
    [
        pytest.param(2, [3], {"full": 0, "swa": 2}, id="an earlier launch"),
        pytest.param(3, [], {"full": 4, "swa": 4}, id="the same launch"),
        pytest.param(4, [], {"full": 4, "swa": 4}, id="a later launch"),
    ],
)
def test_departing_lock_is_released_after_its_pass(launch, departing, evictable):
    bench = CacheBench()
    bench.insert(KEY[:16])
    request = bench.start(KEY)
    bench.custody.record(request).last_launch = 3
    bench.leave(request)

    bench.memory.complete(launch)
    bench.custody.departures.complete(launch)

    assert ([one.launch for one in bench.custody.departures.waiting], bench.evictable) == (departing, evictable)


@pytest.mark.parametrize(
    ("others", "reads", "units"),
    [
        pytest.param([], [1, 2], {"full": 6, "swa": 4, "rows": 1}, id="only this record protects its prefix"),
        pytest.param([KEY], [1, 2], {"full": 2, "swa": 2, "rows": 1}, id="another request protects it too"),
        pytest.param([], KEY, {"full": 2, "swa": 2, "rows": 1}, id="the match reads the prefix"),
    ],
)
def test_units_of_a_record_are_its_row_private_pages_and_pages_only_it_protects(others, reads, units):
    bench = CacheBench()
    bench.insert(KEY[:16])
    request = bench.start(KEY)
    bench.compute(request, 21)
    for tokens in others:
        bench.start(tokens)

    assert bench.custody.units_of(bench.custody.record(request), but=bench.cache.match(reads, 0)) == units


def test_request_holds_only_its_last_record():
    bench = CacheBench()
    request = bench.start(KEY)
    record = bench.custody.record(request)
    [row] = bench.memory.table.rows.take(1, owner=request.owner)
    later = KVRecord(request.owner, row, bench.cache.lock(bench.cache.match(KEY, 0)), 0, 0, 0, 0)
    before = bench.custody.holds(request, record)
    bench.leave(request)
    between = bench.custody.holds(request, record)

    bench.custody.open(request, later)

    assert (before, between) == (True, False)
    assert (bench.custody.holds(request, record), bench.custody.holds(request, later)) == (False, True)
