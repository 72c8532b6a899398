"""Which pages the tree gives up when a pool is short.

A pool that keeps the whole prefix loses unlocked leaves, the least recently used first; a
tombstone left without children goes with its leaf.  A windowed pool first loses what no branch
reads through its window any more, then the rest, both least recently used first.  A node of which
the host has a copy goes on there.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from engine_under_test.cache.node import Node
from engine_under_test.cache.tree import RadixTree
from engine_under_test.events import Demoted, Removed, Tombstoned


@dataclass(slots=True)
class Eviction:
    """What was given up, for the caller to free, and how many pages of each component that is.

    First the windowed pages of the nodes in `tombstoned`, which may be among `dead` too; then
    everything of the nodes in `whole`, and what the nodes in `dead` still have.  Those that were `spared`
    would have been next.
    """

    freed: list[int]
    tombstoned: list[Node] = field(default_factory=list)
    whole: list[Node] = field(default_factory=list)
    dead: list[Node] = field(default_factory=list)
    spared: dict[Node, None] = field(default_factory=dict)  # in order, each once
    num_spared: list[int] = field(default_factory=list)  # pages of theirs, by component

    def take(self, node: Node) -> None:
        """All that a node still has."""
        for component, live in enumerate(node.live):
            self.freed[component] += node.num_pages if live else 0
        (self.whole if all(node.live) else self.dead).append(node)

    def due(self, component: int, wanted: int) -> int:
        """Of `wanted` pages those that should have come free; what stands above who was spared could not."""
        return min(wanted, self.freed[component]) if self.num_spared[component] else wanted


def spare_nobody(_node: Node) -> bool:
    return False


def evict(tree: RadixTree, need: Sequence[int], spares: Callable[[Node], bool] = spare_nobody) -> Eviction:
    """Give up `need` pages of each component, or as many as nobody has locked; no more than the last node over.

    O(log n) a node; of a windowed pool also the branches below the node, as far down as its window reaches.
    The caller frees what is returned before anything else happens.  Whom `spares` spares is passed over, up to as
    many pages as are missing.
    """
    eviction = Eviction([0] * len(need), num_spared=[0] * len(need))
    for component, wanted in enumerate(need):
        spared: dict[Node, None] = {}
        while eviction.freed[component] + eviction.num_spared[component] < wanted:
            victim = _next_victim(tree, component)
            if victim is None:
                break
            if victim in spared:
                continue  # it stands in its queue twice
            if spares(victim):
                eviction.num_spared[component] += victim.num_pages
                spared[victim] = None
            else:
                _give_up(tree, victim, component, eviction)
        eviction.spared |= spared
    for node in eviction.spared:
        tree.candidates.offer(node)
    return eviction


def _give_up(tree: RadixTree, victim: Node, component: int, eviction: Eviction) -> None:
    """All of a leaf that nobody has locked; of any other node its pages of the one component."""
    may_go_whole = victim.is_device_leaf and not any(victim.locks)
    if may_go_whole and victim.host.pages[0]:
        _demote(tree, victim, component, eviction)
    elif may_go_whole and victim.is_leaf:
        _remove(tree, victim, component, eviction)
    else:
        _tombstone(tree, victim, component, eviction)


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


def _demote(tree: RadixTree, leaf: Node, component: int, eviction: Eviction) -> None:
    in_tail = tree.is_tail(leaf)
    eviction.take(leaf)
    tree.demote(leaf)
    if tree.observer:
        tree.observer.notice(Demoted(leaf.id, tree.components[component].name, in_tail))


def _remove(tree: RadixTree, leaf: Node, component: int, eviction: Eviction) -> None:
    """Remove a leaf and the childless tombstones that it leaves above."""
    node: Node | None = leaf
    while node is not None and node.in_tree and node.is_leaf and not any(node.locks):
        if node is not leaf and (all(node.live) or node.host.pages[0]):
            break
        above, in_tail = node.parent, tree.is_tail(node)
        eviction.take(node)
        tree.remove(node)
        if tree.observer:
            tree.observer.notice(Removed(node.id, tree.components[component].name, in_tail))
        node = above
