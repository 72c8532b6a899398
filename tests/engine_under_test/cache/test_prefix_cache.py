"""The prefix cache: matches, published pages, and the pages that are freed when requests leave."""

import pytest

from tests.engine_under_test.builders import ALL_POOLS, SWA_ONLY, CacheBench, NodeSpan, all_pages, node_spans

KEY = list(range(100, 140))


def with_tombstone() -> CacheBench:
    """A cache in which [0, 16) is a tombstone and [16, 24) is live."""
    bench = CacheBench()
    bench.insert(KEY[:24], slid=True)
    return bench


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


def test_slid_pages_are_published_as_a_tombstone():
    bench = with_tombstone()

    assert node_spans(bench.cache.tree) == [NodeSpan(0, 16, "full"), NodeSpan(16, 24, "full swa")]


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
