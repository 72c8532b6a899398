"""Eviction candidates, least recently used first."""

import heapq
from collections.abc import Callable

from engine_under_test.cache.node import Node

COMPACT_AT = 32  # entries; a longer queue is searched for stale entries


class LruQueue:
    """A heap of nodes by last use; `pop` drops stale entries.

    `push` costs O(log n).  A node may have several entries.  An entry is stale if its `last_used` is not that of its
    node, or if its node is no candidate by `is_candidate`.
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


class Candidates:
    """The nodes that may be evicted, by kind: unlocked leaves, and unlocked live nodes of the windowed component.

    A windowed node is first in `interior`.  Eviction moves it to `tails` if it is still in the tail of a branch.
    On the host, nodes in `copies` may lose the whole copy, nodes in `copied_windows` that of the windowed component.
    """

    def __init__(self, windowed: int | None) -> None:
        self._windowed = windowed
        self.leaves = LruQueue(self._is_unlocked_leaf)
        self.interior = LruQueue(self._is_unlocked_and_live)
        self.tails = LruQueue(self._is_unlocked_and_live)
        self.copies = LruQueue(self._is_idle_copy)
        self.copied_windows = LruQueue(self._is_idle_copied_window)
        self._planned_drops: set[Node] = set()

    def offer(self, node: Node) -> None:
        """Queue a node again after a change of its use, locks, pages or children."""
        self.leaves.push(node)
        if self._windowed is not None:
            self.interior.push(node)
        if node.host.pages[0]:
            self.copies.push(node)
            if self._windowed:
                self.copied_windows.push(node)

    def plan_drop(self, node: Node) -> None:
        """Count the copy of a node as dropped, until `forget_planned_drops`; the copy of its parent may be next."""
        self._planned_drops.add(node)
        if node.parent is not None:
            self.offer(node.parent)

    def forget_planned_drops(self) -> None:
        """Forget all planned drops; the caller offers the nodes that keep their copies again."""
        self._planned_drops.clear()

    def _is_unlocked_leaf(self, node: Node) -> bool:
        return node.in_tree and node.live[0] and not node.locks[0] and node.is_device_leaf

    def _is_unlocked_and_live(self, node: Node) -> bool:
        index = self._windowed
        return index is not None and node.in_tree and node.live[index] and not node.locks[index]

    def _is_idle_copy(self, node: Node) -> bool:
        """Does the node have a copy that no load, no copy of a child and no lock needs?"""
        return (
            node.in_tree
            and self._has_copy(node)
            and not any(node.host.pins)
            and (node.live[0] or not any(node.locks))
            and (self._windowed == 0 or not any(map(self._has_copy, node.children.values())))
        )

    def _is_idle_copied_window(self, node: Node) -> bool:
        index = self._windowed
        return index is not None and node.in_tree and bool(node.host.pages[index]) and not node.host.pins[index]

    def _has_copy(self, node: Node) -> bool:
        return bool(node.host.pages[0]) and node not in self._planned_drops
