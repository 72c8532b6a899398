"""Which pages the tree gives up when a pool is short.

A pool that keeps the whole prefix loses unlocked leaves, the least recently used first; a
tombstone left without children goes with its leaf.  A windowed pool first loses what no branch
reads through its window any more, then the rest, both least recently used first.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from engine_under_test.cache.node import Node
from engine_under_test.cache.tree import RadixTree
from engine_under_test.events import Removed, Tombstoned


@dataclass(slots=True)
class Eviction:
    """What was given up, for the caller to free, and how many pages of each component that is.

    First the windowed pages of the nodes in `tombstoned`, which may be among `dead` too; then
    everything of the nodes in `whole`, and what the nodes in `dead` still have.
    """

    freed: list[int]
    tombstoned: list[Node] = field(default_factory=list)
    whole: list[Node] = field(default_factory=list)
    dead: list[Node] = field(default_factory=list)


def evict(tree: RadixTree, need: Sequence[int]) -> Eviction:
    """Give up `need` pages of each component, or as many as nobody has locked; no more than the last node over.

    O(log n) a node; of a windowed pool also the branches below the node, as far down as its window reaches.
    The caller frees what is returned before anything else happens.
    """
    eviction = Eviction([0] * len(need))
    for component, wanted in enumerate(need):
        while eviction.freed[component] < wanted:
            victim = _next_victim(tree, component)
            if victim is None:
                break
            if victim.is_leaf and not any(victim.locks):
                _remove(tree, victim, component, eviction)
            else:
                _tombstone(tree, victim, component, eviction)
    return eviction


def _next_victim(tree: RadixTree, component: int) -> Node | None:
    if tree.components[component].window is None:
        return tree.candidates.leaves.pop()
    while (node := tree.candidates.interior.pop()) is not None:
        if not tree.is_tail(node):
            return node
        tree.candidates.tails.push(node)
    return tree.candidates.tails.pop()


def _tombstone(tree: RadixTree, node: Node, component: int, eviction: Eviction) -> None:
    in_tail = tree.is_tail(node)
    tree.set_live(node, component, live=False)
    eviction.freed[component] += node.num_pages
    eviction.tombstoned.append(node)
    if tree.observer:
        tree.observer.notice(Tombstoned(node.id, tree.components[component].name, in_tail))


def _remove(tree: RadixTree, leaf: Node, component: int, eviction: Eviction) -> None:
    """Remove a leaf and the childless tombstones that it leaves above."""
    node: Node | None = leaf
    while node is not None and node.in_tree and node.is_leaf and not any(node.locks):
        if node is not leaf and all(node.live):
            break
        above, in_tail = node.parent, tree.is_tail(node)
        for index, live in enumerate(node.live):
            eviction.freed[index] += node.num_pages if live else 0
        (eviction.whole if all(node.live) else eviction.dead).append(node)
        tree.remove(node)
        if tree.observer:
            tree.observer.notice(Removed(node.id, tree.components[component].name, in_tail))
        node = above
