"""Eviction beside a host: what it has a copy of goes on there."""

from engine_under_test.events import Demoted
from tests.engine_under_test.builders import Stretch, stretches
from tests.engine_under_test.host.bench import HOSTED_SWA_ONLY, HostBench, copies

LONG, OTHER = list(range(100, 120)), list(range(200, 220))


def bench_with_copies(*keys) -> HostBench:
    """A cache of these keys, the first the least recently used, all of which the host has too."""
    bench = HostBench()
    for key in keys:
        bench.copied(key)
    return bench


def test_what_the_host_has_goes_on_there():
    bench = bench_with_copies(LONG[:8], OTHER[:8])

    bench.cache.evict({"full": 1})

    assert (stretches(bench.tree), bench.device.free) == (
        [Stretch(0, 8, ""), Stretch(0, 8, "full swa")],
        {"full": 14, "swa": 10},
    )


def test_who_goes_on_on_the_host_is_reported():
    bench = bench_with_copies(LONG)
    upper, leaf = (node.id for node in bench.nodes())

    bench.cache.evict({"full": 5})

    assert bench.heard.of(Demoted) == [Demoted(leaf, "full", in_tail=True), Demoted(upper, "full", in_tail=False)]


def test_what_is_on_the_host_alone_does_not_hide_what_stands_above():
    bench = bench_with_copies(LONG)
    bench.cache.evict({"full": 2})

    bench.cache.evict({"full": 3})

    assert (stretches(bench.tree), bench.device.free) == (
        [Stretch(0, 12, ""), Stretch(12, 20, "")],
        {"full": 16, "swa": 12},
    )


def test_a_tombstone_goes_on_on_the_host_with_what_it_has():
    bench = bench_with_copies(LONG)
    bench.cache.evict({"swa": 1})

    bench.cache.evict({"full": 5})

    assert (copies(bench.tree), bench.device.free) == (
        [Stretch(0, 12, "full swa"), Stretch(12, 20, "full swa")],
        {"full": 16, "swa": 12},
    )


def test_a_window_is_evicted_without_the_rest_where_others_go_on_from_it():
    bench = bench_with_copies(LONG)

    bench.cache.evict({"swa": 1})

    assert stretches(bench.tree) == [Stretch(0, 12, "full"), Stretch(12, 20, "full swa")]


def test_a_leaf_without_a_copy_leaves_those_above_that_have_one():
    bench = bench_with_copies(LONG[:8])
    bench.cached(LONG[:16])
    bench.cache.evict({"swa": 2})

    bench.cache.evict({"full": 1})

    assert (stretches(bench.tree), copies(bench.tree)) == ([Stretch(0, 8, "full")], [Stretch(0, 8, "full swa")])


def test_in_a_window_alone_what_others_on_the_host_go_on_from_stays_as_a_tombstone():
    bench = HostBench(HOSTED_SWA_ONLY)
    bench.copied(LONG)
    bench.tree.drop_copy(bench.nodes()[0], 0)

    bench.cache.flush()

    assert (stretches(bench.tree), copies(bench.tree), bench.device.free) == (
        [Stretch(0, 12, ""), Stretch(12, 20, "")],
        [Stretch(0, 12, ""), Stretch(12, 20, "swa")],
        {"swa": 12},
    )
