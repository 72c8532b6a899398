"""The prefix cache: matches, published pages, and the pages that are freed when requests leave."""

import pytest

from swarden.invariants.events import Inserted
from tests.engine_under_test.builders import (
    ALL_POOLS,
    HYBRID,
    SWA_ONLY,
    UNSHARED,
    CacheBench,
    NodeSpan,
    all_pages,
    node_spans,
)

KEY = list(range(100, 140))


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


def with_tombstone(*, live_len: int = 0) -> CacheBench:
    """A cache in which [live_len, 16) is a tombstone, and the tokens before it and [16, 24) are live."""
    bench = CacheBench()
    if live_len:
        bench.insert(KEY[:live_len])
    bench.insert(KEY[:24], slid=True)
    return bench


@pytest.mark.parametrize("live_len", [pytest.param(0, id="at the start"), pytest.param(8, id="behind live pages")])
@pytest.mark.parametrize(
    ("length", "is_behind"),
    [
        pytest.param(9, False, id="before or inside the tombstone"),
        pytest.param(17, False, id="ends with the tombstone"),
        pytest.param(21, False, id="less than a window behind it"),
        pytest.param(25, True, id="a window behind it"),
    ],
)
def test_a_match_needs_a_live_window_behind_a_tombstone(live_len, length, is_behind):
    """A shorter match is the one before the tombstone."""
    assert with_tombstone(live_len=live_len).match_len(KEY[:length]) == (24 if is_behind else live_len)


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


def test_a_publication_makes_the_tree_the_owner_of_whole_pages():
    bench = CacheBench()
    request = bench.start(KEY[:10])
    bench.compute(request, 10)

    bench.publish(request)

    record = bench.custody.record(request)
    assert (record.protected_len, list(record.private_parts(4))) == (8, [(record.handles[2:], [])])


def test_publishing_cached_tokens_frees_the_duplicates():
    bench = CacheBench()
    first, second = bench.start(KEY[:8]), bench.start(KEY[:8])
    for request in (first, second):
        bench.compute(request, 8)
        bench.publish(request)

    record, handles = bench.custody.record(second), bench.custody.record(first).handles
    assert (record.handles, bench.free) == (handles, {"full": 14, "swa": 10})
    assert list(bench.memory.table.read(record.row, 0, 2)) == handles


def test_a_publication_is_reported():
    bench = CacheBench()
    request = bench.start(KEY[:24])
    bench.compute(request, 24)
    bench.slide(request)

    bench.publish(request)

    assert bench.log.of(Inserted) == [Inserted(1, 0, 16, 24)]


def test_slid_pages_are_published_as_a_tombstone():
    bench = with_tombstone()

    assert node_spans(bench.cache.tree) == [NodeSpan(0, 16, "full"), NodeSpan(16, 24, "full swa")]


@pytest.mark.parametrize("is_locked", [False, True], ids=["unlocked", "locked"])
def test_tombstone_recovers_with_recomputed_pages(is_locked):
    """A locked tombstone keeps its full pages."""
    bench = with_tombstone()
    if is_locked:
        bench.start(KEY[:25])
    before = list(bench.cache.match(KEY, 0).handles)

    bench.insert(KEY[:16])

    after = bench.cache.match(KEY, 0).handles
    assert (bench.match_len(KEY[:17]), bench.free) == (16, {"full": 10, "swa": 6})
    assert (after[:4] == before[:4], after[4:]) == (is_locked, before[4:])


@ALL_POOLS
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
    assert bench.memory.table.rows.num_free == config.max_running_requests


def test_flush_keeps_locked_pages():
    bench = CacheBench()
    bench.insert(KEY[:16])
    reader = bench.start(KEY[:9])
    bench.cache.flush()

    before = node_spans(bench.cache.tree)
    bench.leave(reader)
    bench.cache.flush()

    assert (before, bench.free) == ([NodeSpan(0, 8, "full swa")], all_pages(HYBRID))


def test_without_sharing_nothing_matches():
    bench = CacheBench(UNSHARED)

    bench.insert(KEY[:16])

    assert (bench.match_len(KEY), bench.free) == (0, all_pages(UNSHARED))
