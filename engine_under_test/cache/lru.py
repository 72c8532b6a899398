"""Eviction candidates, least recently used first."""

import heapq
from collections.abc import Callable, Sequence
from functools import partial

from swarden.engine_under_test.cache.node import Node, ends_within
from swarden.engine_under_test.components import Component

COMPACT_AT = 32  # entries; a longer queue is searched for stale entries


class LruQueue:
    """A heap of nodes by last use; `pop` drops stale entries.

    `push` costs O(log n).  A node may have several entries.  An entry is stale if its `last_used` differs from that of
    its node, or if its node is not a candidate by `is_candidate`.
    """

    def __init__(self, is_candidate: Callable[[Node], bool]) -> None:
        self._is_candidate = is_candidate
        self._heap: list[tuple[int, int, int, Node]] = []
        self._num_pushes = 0  # breaks ties, so that nodes are never compared
        self._compact_at = COMPACT_AT

    def __len__(self) -> int:
        """The number of entries, stale ones included."""
        return len(self._heap)

    def push(self, node: Node) -> None:
        """Add a node if it is a candidate."""
        if self._is_candidate(node):
            self._num_pushes += 1
            heapq.heappush(self._heap, (node.last_used, node.end, self._num_pushes, node))
            if len(self._heap) > self._compact_at:
                self._compact()

    def pop(self) -> Node | None:
        """The least recently used candidate; None when there is none."""
        while self._heap:
            last_used, end, _, node = heapq.heappop(self._heap)
            if (last_used, end) == (node.last_used, node.end) and self._is_candidate(node):
                return node
        return None

    def _compact(self) -> None:
        kept = {
            entry[3].id: entry
            for entry in self._heap
            if entry[0] == entry[3].last_used and entry[1] == entry[3].end and self._is_candidate(entry[3])
        }
        self._heap = list(kept.values())
        heapq.heapify(self._heap)
        self._compact_at = max(COMPACT_AT, 4 * len(self._heap))


class Victims:
    """The nodes that may lose their pages of one component, in the order of eviction.

    If the component leaves tombstones, any unlocked node is a victim; nodes outside of every tail, the last `tail_len`
    tokens of a branch, come first.  Otherwise only unlocked leaves are victims.
    """

    def __init__(self, index: int, component: Component) -> None:
        self._index = index
        self._leaves_tombstones, self._tail_len = component.leaves_tombstones, component.tail_len
        self._first = LruQueue(self._is_unlocked_and_live if self._leaves_tombstones else self._is_unlocked_leaf)
        self._tails = LruQueue(self._is_unlocked_and_live)
        self.offer = self._first.push

    def is_tail(self, node: Node) -> bool:
        """Would a match to the end of some branch read this node in the component?"""
        return ends_within(node, self._tail_len)

    def pop(self) -> Node | None:
        """The next victim; None when there is none.  A node in a tail is queued again behind all others."""
        while (node := self._first.pop()) is not None:
            if not self._leaves_tombstones or not self.is_tail(node):
                return node
            self._tails.push(node)
        return self._tails.pop()

    def _is_unlocked_leaf(self, node: Node) -> bool:
        index = self._index
        return node.in_tree and node.live[index] and not node.locks[index] and node.is_device_leaf

    def _is_unlocked_and_live(self, node: Node) -> bool:
        return node.in_tree and node.live[self._index] and not node.locks[self._index]


class Candidates:
    """The nodes that may lose pages: `victims` on the device, by component, and copies on the host.

    Nodes in `copies` may lose the whole copy.  If some component leaves no tombstones, each copy needs the copy of its
    parent.  Then the copies of pages in the other components may be dropped alone.
    """

    def __init__(self, components: Sequence[Component]) -> None:
        self.is_rooted = not all(component.leaves_tombstones for component in components)
        self.victims = [Victims(index, component) for index, component in enumerate(components)]
        self.copies = LruQueue(self._is_idle_copy)
        self._parts = {
            index: LruQueue(partial(self._is_idle_part, index))
            for index, component in enumerate(components)
            if self.is_rooted and component.leaves_tombstones
        }
        self._planned_drops: set[Node] = set()

    def offer(self, node: Node) -> None:
        """Queue a node again after a change of its use, locks, pages or children."""
        for victims in self.victims:
            victims.offer(node)
        if node.has_copy:
            self.copies.push(node)
            for queue in self._parts.values():
                queue.push(node)

    def can_drop_alone(self, component: int) -> bool:
        """Can a node lose the copies of its pages in a component, and keep others?"""
        return component in self._parts

    def copies_of(self, component: int) -> LruQueue:
        """The nodes that may lose the copies of their pages in a component, alone or with all others."""
        return self._parts.get(component, self.copies)

    def plan_drop(self, node: Node) -> None:
        """Count the copy of a node as dropped, until `forget_planned_drops`; the copy of its parent may be next."""
        self._planned_drops.add(node)
        if node.parent is not None:
            self.offer(node.parent)

    def forget_planned_drops(self) -> None:
        """Forget all planned drops; the caller offers the nodes that keep their copies again."""
        self._planned_drops.clear()

    def _is_idle_copy(self, node: Node) -> bool:
        """Does the node have a copy that no load, no copy of a child and no lock needs?"""
        return (
            node.in_tree
            and self._has_copy(node)
            and not any(node.host.pins)
            and (node.is_on_device or not node.is_locked)
            and (not self.is_rooted or not any(map(self._has_copy, node.children.values())))
        )

    def _is_idle_part(self, component: int, node: Node) -> bool:
        return node.in_tree and bool(node.host.pages[component]) and not node.host.pins[component]

    def _has_copy(self, node: Node) -> bool:
        return node.has_copy and node not in self._planned_drops
