"""KV records grow, slide and are released, and lose no page."""

import pytest

from swarden.engine_under_test.errors import PoolExhausted
from swarden.invariants.events import Slid
from tests.engine_under_test.builders import CacheBench, hold

KEY = list(range(100, 140))


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
    assert (str(caught.value), record.allocated_len, bench.free) == ("swa: want 3, 2 free", 0, {"full": 16, "swa": 2})


def test_a_slide_frees_the_private_pages_below_the_frontier():
    bench = CacheBench()
    request = bench.start(KEY)
    bench.compute(request, 21)

    bench.slide(request)

    assert (bench.free, bench.log.of(Slid)) == ({"full": 10, "swa": 9}, [Slid(request.id, 0, 12, "swa")])


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


def test_a_request_holds_one_record():
    bench = CacheBench()
    request = bench.start(KEY)

    with pytest.raises(AssertionError) as caught:
        bench.custody.open(request, bench.custody.record(request))

    assert str(caught.value).splitlines()[0] == "request 1 has a record already"
