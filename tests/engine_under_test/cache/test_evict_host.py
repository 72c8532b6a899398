"""Eviction with a host tier: a node with a copy stays in the tree for that copy."""

from swarden.invariants.events import Demoted
from tests.engine_under_test.builders import NodeSpan, node_spans
from tests.engine_under_test.host.bench import HOSTED_SWA_ONLY, HostBench, copies

LONG, OTHER = list(range(100, 120)), list(range(200, 220))


def bench_with_copies(*keys) -> HostBench:
    """A cache of these keys, the least recently used first, with copies on the host."""
    bench = HostBench()
    for key in keys:
        bench.insert_with_copy(key)
    return bench


def test_evicted_node_with_a_copy_stays_on_the_host():
    bench = bench_with_copies(LONG[:8], OTHER[:8])

    bench.cache.evict({"full": 1})

    assert (node_spans(bench.tree), bench.device.free) == (
        [NodeSpan(0, 8, ""), NodeSpan(0, 8, "full swa")],
        {"full": 14, "swa": 10},
    )


def test_demoted_nodes_are_reported():
    bench = bench_with_copies(LONG)
    upper, leaf = (node.id for node in bench.nodes())

    bench.cache.evict({"full": 5})

    assert bench.log.of(Demoted) == [Demoted(leaf, "full", in_tail=True), Demoted(upper, "full", in_tail=True)]


def test_parent_of_demoted_nodes_can_be_evicted():
    bench = bench_with_copies(LONG)
    bench.cache.evict({"full": 2})

    bench.cache.evict({"full": 3})

    assert (node_spans(bench.tree), bench.device.free) == (
        [NodeSpan(0, 12, ""), NodeSpan(12, 20, "")],
        {"full": 16, "swa": 12},
    )


def test_demoted_tombstone_keeps_its_copy():
    bench = bench_with_copies(LONG)
    bench.cache.evict({"swa": 1})

    bench.cache.evict({"full": 5})

    assert (copies(bench.tree), bench.device.free) == (
        [NodeSpan(0, 12, "full swa"), NodeSpan(12, 20, "full swa")],
        {"full": 16, "swa": 12},
    )


def test_leaf_without_a_copy_is_removed_and_its_copied_parent_stays():
    bench = bench_with_copies(LONG[:8])
    bench.insert(LONG[:16])
    bench.cache.evict({"swa": 2})

    bench.cache.evict({"full": 1})

    assert (node_spans(bench.tree), copies(bench.tree)) == ([NodeSpan(0, 8, "full")], [NodeSpan(0, 8, "full swa")])


def test_with_swa_pages_only_the_parent_of_a_copied_node_stays_as_a_tombstone():
    bench = HostBench(HOSTED_SWA_ONLY)
    bench.insert_with_copy(LONG)
    bench.tree.drop_copy(bench.nodes()[0], {0})

    bench.cache.flush()

    assert (node_spans(bench.tree), copies(bench.tree), bench.device.free) == (
        [NodeSpan(0, 12, ""), NodeSpan(12, 20, "")],
        [NodeSpan(0, 12, ""), NodeSpan(12, 20, "swa")],
        {"swa": 12},
    )
