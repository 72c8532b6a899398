"""Eviction: the order of the nodes in each pool, the freed pages, and when it stops."""

import pytest

from swarden.engine_under_test.cache.evict import evict
from swarden.engine_under_test.cache.tree import RadixTree
from swarden.engine_under_test.components import FullAttention, SlidingWindow
from tests.engine_under_test.builders import CacheBench, NodeSpan, node_spans, nodes_of

LONG, OTHER, THIRD = list(range(100, 120)), list(range(200, 220)), list(range(300, 320))


def bench_with(*keys) -> CacheBench:
    """A cache of these keys, the least recently used first."""
    bench = CacheBench()
    for key in keys:
        bench.insert(key)
    return bench


def touch(bench: CacheBench, key) -> None:
    """Lock and unlock all of a cached key."""
    bench.leave(bench.start([*key, 1]))


def test_swa_pages_outside_every_window_are_evicted_first():
    bench = bench_with(OTHER[:8], LONG)

    bench.cache.evict({"swa": 1})

    assert node_spans(bench.cache.tree) == [
        NodeSpan(0, 8, "full swa"),
        NodeSpan(0, 12, "full"),
        NodeSpan(12, 20, "full swa"),
    ]


@pytest.mark.parametrize(
    ("need", "left"),
    [pytest.param({"swa": 1}, [8, 0, 8], id="windowed pages"), pytest.param({"full": 3}, [8, 0, 0], id="full pages")],
)
def test_least_recently_used_leaf_is_evicted_first(need, left):
    bench = bench_with(LONG[:8], OTHER[:8], THIRD[:8])
    touch(bench, LONG[:8])

    bench.cache.evict(need)

    assert [bench.match_len(key) for key in (LONG, OTHER, THIRD)] == left


def test_childless_live_node_stays():
    bench = bench_with(LONG)

    bench.cache.evict({"full": 1})

    assert node_spans(bench.cache.tree) == [NodeSpan(0, 12, "full swa")]


@pytest.mark.parametrize(
    ("need", "free"),
    [
        pytest.param({"full": 0, "swa": 0}, {"full": 10, "swa": 6}, id="nothing"),
        pytest.param({"full": 1}, {"full": 12, "swa": 8}, id="one full page: a leaf of two"),
        pytest.param({"full": 2}, {"full": 12, "swa": 8}, id="two full pages: a leaf of two"),
        pytest.param({"full": 3}, {"full": 14, "swa": 10}, id="three full pages: two leaves"),
        pytest.param({"full": 2, "swa": 2}, {"full": 12, "swa": 8}, id="swa pages of the evicted leaf count"),
        pytest.param({"full": 2, "swa": 3}, {"full": 14, "swa": 10}, id="more swa pages than the leaf has"),
        pytest.param({"swa": 2}, {"full": 12, "swa": 8}, id="two swa pages"),
        pytest.param({"full": 99, "swa": 99}, {"full": 16, "swa": 12}, id="more than all"),
    ],
)
def test_eviction_stops_when_each_need_is_met(need, free):
    bench = bench_with(LONG[:8], OTHER[:8], THIRD[:8])

    bench.cache.evict(need)

    assert bench.free == free


def test_locked_nodes_are_not_evicted():
    bench = bench_with(LONG[:8], OTHER[:8])
    bench.start([*LONG[:8], 1])

    bench.cache.evict({"full": 99, "swa": 99})

    assert (bench.match_len(LONG), bench.match_len(OTHER), bench.free) == (8, 0, {"full": 14, "swa": 10})


def test_a_branch_of_many_short_nodes_can_be_evicted():
    """One node per token, more than Python's recursion limit, all within the window."""
    tree = RadixTree((FullAttention("full", 1200, 1), SlidingWindow("swa", 1200, 1, 4096)), page_size=1)
    tokens = list(range(1100))
    node = tree.insert(tokens, list(range(1, 1101)), namespace=0, protected_len=0, absent={}).node
    for _ in tokens[1:]:
        tree.split(node, 1)

    assert evict(tree, [0, 1]).freed == [0, 1]


def test_no_more_pages_are_spared_than_are_missing():
    bench = bench_with(LONG[:8], OTHER[:8], THIRD[:8])
    first, *_ = nodes_of(bench.cache.tree)

    spared = bench.cache.evict({"full": 2}, spares=lambda _: True)

    assert (spared, bench.free) == ([first], {"full": 10, "swa": 6})


def test_node_spared_in_two_pools_is_returned_once():
    bench = bench_with(LONG[:8])
    [node] = nodes_of(bench.cache.tree)

    assert bench.cache.evict({"full": 1, "swa": 1}, spares=lambda _: True) == [node]
