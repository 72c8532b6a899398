"""The queue of candidates: who comes first, and what becomes of entries that no longer hold."""

from dataclasses import replace

from engine_under_test.cache.lru import COMPACT_AT, LruQueue
from engine_under_test.cache.node import Node
from tests.engine_under_test.builders import HYBRID, CacheBench

ROOMY = replace(HYBRID, full_pages=4 * COMPACT_AT, swa_pages=4 * COMPACT_AT)


def queue_of(*used: int) -> tuple[LruQueue, list[Node]]:
    """A queue of one node for each time of use."""
    bench = CacheBench(ROOMY)
    for index in range(len(used)):
        bench.cached([100 + index] * 4)
    [root] = bench.cache.tree.roots.values()
    queue, nodes = LruQueue(lambda node: node.in_tree), list(root.children.values())
    for node, last_used in zip(nodes, used, strict=True):
        node.last_used = last_used
        queue.push(node)
    return queue, nodes


def popped(queue: LruQueue) -> list[Node]:
    return list(iter(queue.pop, None))


def test_the_least_recently_used_comes_first():
    queue, [late, early, middle] = queue_of(9, 1, 5)

    assert popped(queue) == [early, middle, late]


def test_a_node_counts_by_its_last_use_alone():
    queue, [first, second] = queue_of(1, 5)
    first.last_used = 9
    queue.push(first)

    assert popped(queue) == [second, first]


def test_tidying_forgets_what_no_longer_holds_and_nothing_else():
    """A node that is used over and over stands in the queue once when it is tidied, in its place."""
    queue, [busy, idle] = queue_of(0, COMPACT_AT)

    for last_used in range(1, 2 * COMPACT_AT):
        busy.last_used = last_used
        queue.push(busy)

    assert len(queue) <= COMPACT_AT + 1
    assert popped(queue) == [idle, busy]


def test_a_queue_in_which_everything_holds_keeps_all():
    queue, nodes = queue_of(*range(COMPACT_AT + 2))

    assert len(queue) == len(nodes)
    assert popped(queue) == nodes
