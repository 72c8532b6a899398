"""Eviction: which pages the tree releases when a pool is short.

If a component leaves no tombstones, unlocked leaves are evicted, least recently used first.  A tombstone left without
children is evicted with its leaf.  In any other component, pages outside the tail of every branch are evicted first,
then the rest, both least recently used first.  So a checkpoint of states, which serves only a prompt that branches off
there, is evicted before the state at the end of a branch.  A node with a copy on the host stays in the tree for that
copy.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from swarden.engine_under_test.cache.node import Node
from swarden.engine_under_test.cache.tree import Pools, RadixTree
from swarden.invariants.events import Demoted, Removed, Tombstoned


@dataclass(slots=True)
class Eviction:
    """The evicted pages, for the caller to free, and their count in each component.

    The caller first frees the pages of the `tombstoned` nodes in one pool each; such a node may be in `whole` too. It
    then frees the remaining pages of the nodes in `whole`, which are grouped by the pools in which they have no pages.
    The nodes in `spared` were next in the eviction order, but were kept.
    """

    freed: list[int]
    tombstoned: list[tuple[str, Node]] = field(default_factory=list)
    whole: dict[Pools, list[Node]] = field(default_factory=dict)
    spared: dict[Node, None] = field(default_factory=dict)  # an ordered set
    num_spared: list[int] = field(default_factory=list)  # pages of the spared nodes, by component

    def take(self, node: Node, lacks: Pools) -> None:
        """Count all remaining pages of a node as evicted; the node has no pages in the pools `lacks`."""
        for component, live in enumerate(node.live):
            self.freed[component] += node.num_pages if live else 0
        self.whole.setdefault(lacks, []).append(node)

    def due(self, component: int, wanted: int) -> int:
        """The number of the `wanted` pages that had to become free: ancestors of a spared node cannot be evicted."""
        return min(wanted, self.freed[component]) if self.num_spared[component] else wanted


def spare_none(_node: Node) -> bool:
    return False


def evict(tree: RadixTree, need: Sequence[int], spares: Callable[[Node], bool] = spare_none) -> Eviction:
    """Evict until `need` pages of each component are freed, or no unlocked pages are left.

    No node is split, and a leaf loses its pages of all components, so more pages may be freed.

    Costs O(log n) a node; in a component with tombstones also a walk over the branches below the node, within a tail.
    The caller frees the returned pages before anything else happens.  Nodes for which `spares` is true are skipped, up
    to as many pages as are missing.
    """
    eviction = Eviction([0] * len(need), num_spared=[0] * len(need))
    for component, wanted in enumerate(need):
        spared: dict[Node, None] = {}
        while eviction.freed[component] + eviction.num_spared[component] < wanted:
            victim = tree.candidates.victims[component].pop()
            if victim is None:
                break
            if victim in spared:
                continue  # the queue has two entries for this node
            if spares(victim):
                eviction.num_spared[component] += victim.num_pages
                spared[victim] = None
            else:
                _evict_node(tree, victim, component, eviction)
        eviction.spared |= spared
    for node in eviction.spared:
        tree.candidates.offer(node)
    return eviction


def _evict_node(tree: RadixTree, victim: Node, component: int, eviction: Eviction) -> None:
    """Evict all pages of an unlocked leaf; of any other node only its pages of the one component."""
    may_go_whole = victim.is_device_leaf and not victim.is_locked
    if may_go_whole and victim.has_copy:
        _demote(tree, victim, component, eviction)
    elif may_go_whole and victim.is_leaf:
        _remove(tree, victim, component, eviction)
    else:
        _tombstone(tree, victim, component, eviction)


def _tombstone(tree: RadixTree, node: Node, component: int, eviction: Eviction) -> None:
    name, in_tail = tree.components[component].name, tree.candidates.victims[component].is_tail(node)
    tree.set_live(node, component, live=False)
    eviction.freed[component] += node.num_pages
    eviction.tombstoned.append((name, node))
    if tree.observer:
        tree.observer.notice(Tombstoned(node.id, name, in_tail))


def _demote(tree: RadixTree, leaf: Node, component: int, eviction: Eviction) -> None:
    in_tail = tree.candidates.victims[component].is_tail(leaf)
    eviction.take(leaf, tree.lacking(leaf.live))
    tree.demote(leaf)
    if tree.observer:
        tree.observer.notice(Demoted(leaf.id, tree.components[component].name, in_tail))


def _remove(tree: RadixTree, leaf: Node, component: int, eviction: Eviction) -> None:
    """Remove a leaf, and the ancestors that are childless tombstones after that."""
    node: Node | None = leaf
    while node is not None and node.in_tree and node.is_leaf and not node.is_locked:
        if node is not leaf and (all(node.live) or node.has_copy):
            break
        above, in_tail = node.parent, tree.candidates.victims[component].is_tail(node)
        eviction.take(node, tree.lacking(node.live))
        tree.remove(node)
        if tree.observer:
            tree.observer.notice(Removed(node.id, tree.components[component].name, in_tail))
        node = above
