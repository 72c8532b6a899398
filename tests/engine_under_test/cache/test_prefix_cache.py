"""The prefix cache: matches, published pages, and the pages that are freed when requests leave."""

import pytest

from engine_under_test.events import Inserted
from tests.engine_under_test.builders import (
    FULL_ONLY,
    HYBRID,
    SWA_ONLY,
    UNSHARED,
    CacheBench,
    NodeSpan,
    all_pages,
    node_spans,
)

KEY = list(range(100, 140))
ALL_CONFIGS = pytest.mark.parametrize(
    "config", [HYBRID, FULL_ONLY, SWA_ONLY, UNSHARED], ids=["hybrid", "full only", "swa only", "no sharing"]
)


def with_dead_start() -> CacheBench:
    """A cache in which [0, 16) is a tombstone and [16, 24) is live."""
    bench = CacheBench()
    bench.insert(KEY[:24], slid=True)
    return bench


def with_dead_middle() -> CacheBench:
    """A cache in which [0, 8) and [16, 24) are live and [8, 16) is a tombstone."""
    bench = CacheBench()
    bench.insert(KEY[:8])
    bench.insert(KEY[:24], slid=True)
    return bench


def test_nothing_matches_in_an_empty_cache():
    match = CacheBench().cache.match(KEY, 0)

    assert (match.length, match.handles) == (0, [])


@pytest.mark.parametrize(
    ("length", "matched"),
    [
        pytest.param(0, 0, id="no tokens"),
        pytest.param(1, 0, id="one token"),
        pytest.param(4, 0, id="a page, whose last token must be computed"),
        pytest.param(5, 4, id="a page and a token"),
        pytest.param(8, 4, id="two pages"),
        pytest.param(16, 12, id="all cached tokens"),
        pytest.param(17, 16, id="a token more than is cached"),
        pytest.param(40, 16, id="much more than is cached"),
    ],
)
def test_a_match_ends_on_a_page_boundary_before_the_last_token(length, matched):
    bench = CacheBench()
    bench.insert(KEY[:16])

    assert bench.match_len(KEY[:length]) == matched


@pytest.mark.parametrize(
    ("length", "matched"),
    [
        pytest.param(9, 0, id="ends inside the tombstone"),
        pytest.param(17, 0, id="ends with the tombstone"),
        pytest.param(21, 0, id="less than a window behind it"),
        pytest.param(25, 24, id="a window behind it"),
    ],
)
def test_a_match_needs_a_live_window_behind_a_tombstone(length, matched):
    assert with_dead_start().match_len(KEY[:length]) == matched


@pytest.mark.parametrize(
    ("length", "matched"),
    [
        pytest.param(9, 8, id="before the tombstone"),
        pytest.param(17, 8, id="ends with the tombstone"),
        pytest.param(21, 8, id="less than a window behind it"),
        pytest.param(25, 24, id="a window behind it"),
    ],
)
def test_a_match_falls_back_to_before_the_tombstone(length, matched):
    assert with_dead_middle().match_len(KEY[:length]) == matched


def test_longer_key_matches_where_a_shorter_key_does_not():
    bench = with_dead_start()

    assert (bench.match_len(KEY[:21]), bench.match_len(KEY[:25])) == (0, 24)


def test_match_has_the_pages_of_its_tokens():
    bench = CacheBench()
    request = bench.start(KEY[:16])
    bench.compute(request, 16)
    bench.publish(request)

    assert bench.cache.match(KEY[:13], 0).handles == bench.custody.record(request).handles[:3]


def test_with_swa_pages_only_a_match_has_the_pages_of_its_window():
    bench = CacheBench(SWA_ONLY)
    bench.insert(KEY[:16])

    assert [bool(handle) for handle in bench.cache.match(KEY[:17], 0).handles] == [False, False, True, True]


def test_repeated_match_is_the_same():
    bench = with_dead_middle()
    first = bench.cache.match(KEY, 0)

    second = bench.cache.match(KEY, 0)

    assert (first.length, first.handles, first.node.id) == (second.length, second.handles, second.node.id)


def test_a_match_inside_a_node_does_not_split_it():
    bench = CacheBench()
    bench.insert(KEY[:8])

    bench.cache.match(KEY[:5], 0)

    assert node_spans(bench.cache.tree) == [NodeSpan(0, 8, "full swa")]


@pytest.mark.parametrize("kind", [list, tuple], ids=["list", "tuple"])
def test_tokens_match_as_list_and_as_tuple(kind):
    bench = CacheBench()
    bench.insert(KEY[:16])

    assert bench.cache.match(kind(KEY), 0).length == 16


def test_match_in_an_unknown_namespace_creates_no_root():
    bench = CacheBench()

    bench.cache.match(KEY, 7)

    assert list(bench.cache.tree.roots) == []


def test_root_of_an_empty_namespace_is_removed():
    """Otherwise a server with one namespace per user would leak roots."""
    bench = CacheBench()
    bench.insert(KEY[:16], namespace=7)

    bench.cache.flush()

    assert list(bench.cache.tree.roots) == []


def test_namespaces_do_not_share():
    bench = CacheBench()

    bench.insert(KEY[:16], namespace=1)

    assert (bench.match_len(KEY, namespace=1), bench.match_len(KEY, namespace=2)) == (16, 0)


def test_the_same_prefix_in_two_namespaces_is_held_twice():
    bench = CacheBench()

    bench.insert(KEY[:8], namespace=1)
    bench.insert(KEY[:8], namespace=2)

    assert bench.evictable == {"full": 4, "swa": 4}


def test_a_publication_makes_the_tree_the_owner_of_whole_pages():
    bench = CacheBench()
    request = bench.start(KEY[:10])
    bench.compute(request, 10)

    bench.publish(request)

    record = bench.custody.record(request)
    assert (record.protected_len, record.private_handles(4)) == (8, ([], record.handles[2:]))


def test_publishing_cached_tokens_frees_the_duplicates():
    bench = CacheBench()
    first, second = bench.start(KEY[:8]), bench.start(KEY[:8])
    for request in (first, second):
        bench.compute(request, 8)
        bench.publish(request)

    assert (bench.custody.record(second).handles, bench.free) == (
        bench.custody.record(first).handles,
        {"full": 14, "swa": 10},
    )


def test_row_of_a_request_has_the_shared_pages_after_publishing():
    bench = CacheBench()
    first, second = bench.start(KEY[:8]), bench.start(KEY[:8])
    for request in (first, second):
        bench.compute(request, 8)
        bench.publish(request)

    record = bench.custody.record(second)
    assert list(bench.memory.table.read(record.row, 0, 2)) == record.handles


def test_a_publication_of_less_than_a_page_changes_nothing():
    bench = CacheBench()
    request = bench.start(KEY[:3])
    bench.compute(request, 3)

    bench.publish(request)

    assert (bench.custody.record(request).protected_len, node_spans(bench.cache.tree)) == (0, [])


def test_a_publication_is_reported():
    bench = CacheBench()
    request = bench.start(KEY[:24])
    bench.compute(request, 24)
    bench.slide(request)

    bench.publish(request)

    assert bench.log.of(Inserted) == [Inserted(1, 0, 16, 24)]


def test_slid_pages_are_published_as_a_tombstone():
    bench = with_dead_start()

    assert node_spans(bench.cache.tree) == [NodeSpan(0, 16, "full"), NodeSpan(16, 24, "full swa")]


def test_tombstone_recovers_with_recomputed_pages():
    bench = with_dead_start()

    bench.insert(KEY[:24])

    assert (bench.match_len(KEY[:17]), bench.evictable, bench.free) == (
        16,
        {"full": 6, "swa": 6},
        {"full": 10, "swa": 6},
    )


def test_locked_tombstone_keeps_its_pages_when_it_recovers():
    bench = with_dead_start()
    reader = bench.start(KEY[:25])
    before = list(bench.custody.record(reader).handles)

    bench.insert(KEY[:16])

    assert (bench.match_len(KEY[:17]), bench.cache.match(KEY, 0).handles, bench.free) == (
        16,
        before,
        {"full": 10, "swa": 6},
    )


def test_the_pages_of_a_slid_request_are_freed_once():
    bench = CacheBench()
    request = bench.start(KEY[:24])
    bench.compute(request, 24)
    bench.slide(request)
    before = bench.free

    bench.leave(request)

    assert (before, bench.free) == ({"full": 10, "swa": 10}, all_pages(HYBRID))


@ALL_CONFIGS
def test_flush_after_all_requests_have_left_frees_every_page(config):
    bench = CacheBench(config)
    first, second = bench.start(KEY[:24]), bench.start(KEY[:9])
    for request, end in ((first, 12), (second, 9), (first, 24)):
        bench.compute(request, end)
        bench.slide(request)
        bench.publish(request)
    bench.leave(first)
    bench.leave(second)

    bench.cache.flush()

    assert (bench.free, node_spans(bench.cache.tree)) == (all_pages(config), [])


@ALL_CONFIGS
def test_every_row_is_free_after_all_requests_have_left(config):
    bench = CacheBench(config)

    bench.insert(KEY[:24])
    bench.insert(KEY[:9])

    assert bench.memory.table.rows.num_free == 4


def test_flush_keeps_locked_pages():
    bench = CacheBench()
    bench.insert(KEY[:16])
    reader = bench.start(KEY[:9])
    bench.cache.flush()

    before = node_spans(bench.cache.tree)
    bench.leave(reader)
    bench.cache.flush()

    assert (before, bench.free) == ([NodeSpan(0, 8, "full swa")], all_pages(HYBRID))


def test_a_flush_of_an_empty_cache_does_nothing():
    bench = CacheBench()

    bench.cache.flush()

    assert bench.log.events == []


def test_without_sharing_nothing_matches():
    bench = CacheBench(UNSHARED)

    bench.insert(KEY[:16])

    assert (bench.match_len(KEY), bench.free) == (0, all_pages(UNSHARED))


def test_window_slides_without_sharing():
    bench = CacheBench(UNSHARED)
    request = bench.start(KEY[:24])
    bench.compute(request, 24)

    bench.slide(request)

    assert bench.free == {"full": 10, "swa": 10}
