"""The queue of eviction candidates: its order, and its stale entries."""

from dataclasses import replace

from swarden.engine_under_test.cache.lru import COMPACT_AT, LruQueue
from swarden.engine_under_test.cache.node import Node
from tests.engine_under_test.builders import HYBRID, CacheBench

ROOMY = replace(HYBRID, full_pages=4 * COMPACT_AT, swa_pages=4 * COMPACT_AT)


def queue_of(*used: int) -> tuple[LruQueue, list[Node]]:
    """A queue with one node for each time of last use."""
    bench = CacheBench(ROOMY)
    for index in range(len(used)):
        bench.insert([100 + index] * 4)
    [root] = bench.cache.tree.roots.values()
    queue, nodes = LruQueue(lambda node: node.in_tree), list(root.children.values())
    for node, last_used in zip(nodes, used, strict=True):
        node.last_used = last_used
        queue.push(node)
    return queue, nodes


def popped(queue: LruQueue) -> list[Node]:
    return list(iter(queue.pop, None))


def test_least_recently_used_node_is_popped_first():
    queue, [late, early, middle] = queue_of(9, 1, 5)

    assert popped(queue) == [early, middle, late]


def test_only_the_last_use_of_a_node_counts():
    queue, [first, second] = queue_of(1, 5)
    first.last_used = 9
    queue.push(first)

    assert popped(queue) == [second, first]


def test_compaction_drops_only_stale_entries():
    """A node that was used many times has one entry after the compaction, at its last use."""
    queue, [busy, idle] = queue_of(0, COMPACT_AT)

    for last_used in range(1, 2 * COMPACT_AT):
        busy.last_used = last_used
        queue.push(busy)

    assert len(queue) <= COMPACT_AT + 1
    assert popped(queue) == [idle, busy]


def test_compaction_keeps_all_valid_entries():
    queue, nodes = queue_of(*range(COMPACT_AT + 2))

    assert len(queue) == len(nodes)
    assert popped(queue) == nodes
