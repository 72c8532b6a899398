"""Eviction with a host tier: a node with a copy stays in the tree for that copy."""

from swarden.invariants.events import Demoted
from tests.engine_under_test.builders import NodeSpan, node_spans
from tests.engine_under_test.host.bench import HostBench, copies

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


def test_leaf_without_a_copy_is_removed_and_its_copied_parent_stays():
    bench = bench_with_copies(LONG[:8])
    bench.insert(LONG[:16])
    bench.cache.evict({"swa": 2})

    bench.cache.evict({"full": 1})

    assert (node_spans(bench.tree), copies(bench.tree)) == ([NodeSpan(0, 8, "full")], [NodeSpan(0, 8, "full swa")])
