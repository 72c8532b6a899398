"""Eviction: who goes first in which pool, what goes with it, and when it stops."""

import pytest

from engine_under_test.cache.evict import evict
from engine_under_test.cache.node import Component
from engine_under_test.cache.tree import RadixTree
from engine_under_test.events import Evicted, Removed, Tombstoned
from tests.engine_under_test.builders import FULL_ONLY, HYBRID, SWA_ONLY, CacheBench, Stretch, nodes_of, stretches

LONG, OTHER, THIRD = list(range(100, 120)), list(range(200, 220)), list(range(300, 320))


def bench_with(*keys, config=HYBRID) -> CacheBench:
    """A cache of these keys, the first the least recently used."""
    bench = CacheBench(config)
    for key in keys:
        bench.cached(key)
    return bench


def touch(bench: CacheBench, key) -> None:
    """Read all of a cached key."""
    bench.leave(bench.start([*key, 1]))


def test_swa_is_evicted_first_where_no_branch_reads_it_any_more():
    bench = bench_with(OTHER[:8], LONG)

    bench.cache.evict({"swa": 1})

    assert stretches(bench.cache.tree) == [
        Stretch(0, 8, "full swa"),
        Stretch(0, 12, "full"),
        Stretch(12, 20, "full swa"),
    ]


def test_of_two_interior_stretches_the_least_recently_used_goes_first():
    bench = bench_with(LONG, OTHER)
    touch(bench, LONG)

    bench.cache.evict({"swa": 1})

    assert (bench.match_len([*LONG[:12], 1]), bench.match_len([*OTHER[:12], 1])) == (12, 0)


def test_a_tail_is_evicted_from_swa_once_no_interior_is_left():
    bench = bench_with(LONG, OTHER[:8])

    bench.cache.evict({"swa": 4})

    assert stretches(bench.cache.tree) == [Stretch(0, 8, "full swa")]


def test_of_two_tails_the_least_recently_used_goes_first():
    bench = bench_with(LONG[:8], OTHER[:8], THIRD[:8])
    touch(bench, LONG[:8])

    bench.cache.evict({"swa": 1})

    assert (bench.match_len(LONG), bench.match_len(OTHER), bench.match_len(THIRD)) == (8, 0, 8)


def test_while_interiors_suffice_every_branch_still_matches_to_its_end():
    bench = bench_with(LONG, OTHER)

    bench.cache.evict({"swa": 6})

    assert (bench.match_len([*LONG, 1]), bench.match_len([*OTHER, 1]), bench.evictable) == (
        20,
        20,
        {"full": 10, "swa": 4},
    )


def test_what_was_a_tail_becomes_interior_when_its_branch_grows():
    bench = bench_with(LONG[:8], OTHER[:8])
    bench.cached(LONG)

    bench.cache.evict({"swa": 1})

    assert stretches(bench.cache.tree) == [
        Stretch(0, 8, "full"),
        Stretch(8, 12, "full swa"),
        Stretch(12, 20, "full swa"),
        Stretch(0, 8, "full swa"),
    ]


def test_what_was_interior_becomes_a_tail_when_its_branch_is_evicted():
    bench = bench_with(LONG[:8], OTHER)
    bench.cached(LONG[:16])
    touch(bench, OTHER)
    bench.cache.evict({"full": 1})

    bench.cache.evict({"swa": 1})

    assert (bench.match_len([*LONG[:8], 1]), bench.match_len([*OTHER[:12], 1])) == (8, 0)


def test_full_is_evicted_leaf_by_leaf_least_recently_used_first():
    bench = bench_with(LONG[:8], OTHER[:8], THIRD[:8])
    touch(bench, LONG[:8])

    bench.cache.evict({"full": 3})

    assert (bench.match_len(LONG), bench.match_len(OTHER), bench.match_len(THIRD)) == (8, 0, 0)


def test_a_leaf_takes_its_pages_of_all_pools_with_it():
    bench = bench_with(LONG[:8])

    bench.cache.evict({"full": 1})

    assert (bench.free, stretches(bench.cache.tree)) == ({"full": 16, "swa": 12}, [])


def test_a_tombstone_left_without_children_goes_with_its_leaf():
    bench = bench_with(LONG)
    bench.cache.evict({"swa": 1})

    bench.cache.evict({"full": 1})

    assert (bench.free, stretches(bench.cache.tree)) == ({"full": 16, "swa": 12}, [])


def test_a_live_node_left_without_children_stays():
    bench = bench_with(LONG)

    bench.cache.evict({"full": 1})

    assert stretches(bench.cache.tree) == [Stretch(0, 12, "full swa")]


def test_a_tombstone_with_another_branch_stays():
    bench = bench_with(LONG)
    bench.cached([*LONG[:12], *OTHER[:8]])
    bench.cache.evict({"swa": 3})

    bench.cache.evict({"full": 1})

    assert stretches(bench.cache.tree) == [
        Stretch(0, 4, "full"),
        Stretch(4, 12, "full"),
        Stretch(12, 20, "full swa"),
    ]


@pytest.mark.parametrize(
    ("need", "free"),
    [
        pytest.param({"full": 0, "swa": 0}, {"full": 10, "swa": 6}, id="nothing"),
        pytest.param({"full": 1}, {"full": 12, "swa": 8}, id="one full page: a leaf of two"),
        pytest.param({"full": 2}, {"full": 12, "swa": 8}, id="two full pages: just a leaf"),
        pytest.param({"full": 3}, {"full": 14, "swa": 10}, id="three full pages: two leaves"),
        pytest.param({"full": 2, "swa": 2}, {"full": 12, "swa": 8}, id="what full gave up counts for swa"),
        pytest.param({"full": 2, "swa": 3}, {"full": 14, "swa": 10}, id="more swa than full gave up"),
        pytest.param({"swa": 2}, {"full": 12, "swa": 8}, id="two swa pages"),
        pytest.param({"full": 99, "swa": 99}, {"full": 16, "swa": 12}, id="more than there is"),
    ],
)
def test_eviction_stops_when_each_need_is_met(need, free):
    bench = bench_with(LONG[:8], OTHER[:8], THIRD[:8])

    bench.cache.evict(need)

    assert bench.free == free


def test_what_is_locked_is_spared():
    bench = bench_with(LONG[:8], OTHER[:8])
    bench.start([*LONG[:8], 1])

    bench.cache.evict({"full": 99, "swa": 99})

    assert (bench.match_len(LONG), bench.match_len(OTHER), bench.free) == (8, 0, {"full": 14, "swa": 10})


def test_a_leaf_that_is_read_in_full_only_becomes_a_tombstone():
    bench = bench_with(LONG[:8])
    reader = bench.start(LONG)
    bench.compute(reader, 20)
    bench.slide(reader)

    bench.cache.evict({"swa": 1})

    assert (stretches(bench.cache.tree), bench.free) == ([Stretch(0, 8, "full")], {"full": 11, "swa": 10})


def test_a_reader_keeps_its_prefix_when_the_rest_of_the_branch_is_evicted():
    bench = bench_with(LONG)
    bench.start(LONG[:13])

    bench.cache.evict({"full": 99, "swa": 99})

    assert stretches(bench.cache.tree) == [Stretch(0, 4, "full"), Stretch(4, 12, "full swa")]


def test_with_full_pages_only_leaves_are_evicted():
    bench = bench_with(LONG, OTHER[:8], config=FULL_ONLY)

    bench.cache.evict({"full": 5})

    assert (bench.match_len(LONG), bench.free) == (0, {"full": 14})


def test_with_swa_pages_only_the_interior_goes_first():
    bench = bench_with(OTHER[:8], LONG, config=SWA_ONLY)

    bench.cache.evict({"swa": 3})

    assert (bench.match_len(OTHER), bench.match_len([*LONG, 1]), bench.free) == (8, 20, {"swa": 8})


def test_with_swa_pages_only_an_empty_stretch_goes_with_its_leaf():
    bench = bench_with(LONG, config=SWA_ONLY)
    bench.cache.evict({"swa": 3})

    bench.cache.evict({"swa": 1})

    assert (stretches(bench.cache.tree), bench.free) == ([], {"swa": 12})


def test_an_eviction_reports_what_was_needed_what_came_and_what_is_left():
    bench = bench_with(LONG[:8], OTHER[:8])

    bench.cache.evict({"full": 1, "swa": 1})

    assert bench.heard.of(Evicted) == [
        Evicted((("full", 1), ("swa", 1)), (("full", 2), ("swa", 2)), (("full", 2), ("swa", 2)))
    ]


def test_what_goes_is_reported_by_node():
    bench = bench_with(LONG)
    upper, leaf = (node.id for node in nodes_of(bench.cache.tree))

    bench.cache.evict({"swa": 1})
    bench.cache.evict({"full": 1})

    assert [*bench.heard.of(Tombstoned), *bench.heard.of(Removed)] == [
        Tombstoned(upper, "swa", in_tail=False),
        Removed(leaf, "full", in_tail=True),
        Removed(upper, "full", in_tail=True),
    ]


def test_a_branch_of_many_short_nodes_can_be_evicted():
    """A node for each token, more than calls can be nested, and all of them within the window."""
    tree = RadixTree((Component("full", None), Component("swa", 4096)), page_size=1)
    tokens = list(range(1100))
    node = tree.insert(tokens, list(range(1, 1101)), namespace=0, protected_len=0, frontier=0).node
    for _ in tokens[1:]:
        tree.split(node, 1)

    assert evict(tree, [0, 1]).freed == [0, 1]


def test_many_uses_do_not_change_the_order():
    bench = bench_with(LONG[:8], OTHER[:8], THIRD[:8])
    for _ in range(200):
        touch(bench, THIRD[:8])
        touch(bench, LONG[:8])

    bench.cache.evict({"full": 4})

    assert (bench.match_len(LONG), bench.match_len(OTHER), bench.match_len(THIRD)) == (8, 0, 0)


def test_who_is_spared_is_passed_over_and_named():
    bench = bench_with(LONG[:8], OTHER[:8])
    first, _ = nodes_of(bench.cache.tree)

    spared = bench.cache.evict({"full": 3}, spares=lambda node: node is first)

    assert (spared, stretches(bench.cache.tree), bench.free) == (
        [first],
        [Stretch(0, 8, "full swa")],
        {"full": 14, "swa": 10},
    )


def test_no_more_are_spared_than_pages_are_missing():
    bench = bench_with(LONG[:8], OTHER[:8], THIRD[:8])
    first, *_ = nodes_of(bench.cache.tree)

    spared = bench.cache.evict({"full": 2}, spares=lambda _: True)

    assert (spared, bench.free) == ([first], {"full": 10, "swa": 6})


def test_who_was_spared_may_go_the_next_time():
    bench = bench_with(LONG[:8])
    bench.cache.evict({"full": 1, "swa": 1}, spares=lambda _: True)

    bench.cache.evict({"full": 1})

    assert stretches(bench.cache.tree) == []


def test_who_is_spared_in_two_pools_is_named_once():
    bench = bench_with(LONG[:8])
    [node] = nodes_of(bench.cache.tree)

    assert bench.cache.evict({"full": 1, "swa": 1}, spares=lambda _: True) == [node]


def test_what_was_spared_is_not_reported_as_needed():
    bench = bench_with(LONG[:8], OTHER[:8])
    first, _ = nodes_of(bench.cache.tree)

    bench.cache.evict({"full": 3}, spares=lambda node: node is first)

    assert bench.heard.of(Evicted) == [Evicted((("full", 2),), (("full", 2), ("swa", 2)), (("full", 2),))]
