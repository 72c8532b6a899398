"""Who may be evicted, least recently used first."""

import heapq
from collections.abc import Callable

from engine_under_test.cache.node import Node

COMPACT_AT = 32  # entries, from which on those that no longer hold are looked for


class LruQueue:
    """A heap of nodes by last use; entries that no longer hold are dropped when they surface.

    `push` costs O(log n).  A node may stand in it several times; only its entry with its present
    `last_used` counts, and only while `is_candidate` says so.
    """

    def __init__(self, is_candidate: Callable[[Node], bool]) -> None:
        self._is_candidate = is_candidate
        self._heap: list[tuple[int, int, int, Node]] = []
        self._num_pushes = 0  # settles ties, so that nodes are never compared
        self._compact_at = COMPACT_AT

    def __len__(self) -> int:
        """Entries, those that no longer hold among them."""
        return len(self._heap)

    def push(self, node: Node) -> None:
        """Take a candidate in; anything else is passed over."""
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

    A windowed node is offered as `interior`; whoever takes it from there looks whether it still is
    within the tail of a branch, and then moves it to `tails`.  On the host `copies` may go whole, and
    `copied_windows` in the windowed component.
    """

    def __init__(self, windowed: int | None) -> None:
        self._windowed = windowed
        self.leaves = LruQueue(self._is_unlocked_leaf)
        self.interior = LruQueue(self._is_unlocked_and_live)
        self.tails = LruQueue(self._is_unlocked_and_live)
        self.copies = LruQueue(self._is_idle_copy)
        self.copied_windows = LruQueue(self._is_idle_copied_window)
        self._going: set[Node] = set()

    def offer(self, node: Node) -> None:
        """Take note of a node whose use, locks, pages or children have changed."""
        self.leaves.push(node)
        if self._windowed is not None:
            self.interior.push(node)
        if node.host.pages[0]:
            self.copies.push(node)
            if self._windowed:
                self.copied_windows.push(node)

    def goes(self, node: Node) -> None:
        """A copy is as good as gone, until `nobody_goes`: who stands above it may be next."""
        self._going.add(node)
        if node.parent is not None:
            self.offer(node.parent)

    def nobody_goes(self) -> None:
        """Those who were to go have gone, or stay: they are to be offered again."""
        self._going.clear()

    def _is_unlocked_leaf(self, node: Node) -> bool:
        return node.in_tree and node.live[0] and not node.locks[0] and node.is_device_leaf

    def _is_unlocked_and_live(self, node: Node) -> bool:
        index = self._windowed
        return index is not None and node.in_tree and node.live[index] and not node.locks[index]

    def _is_idle_copy(self, node: Node) -> bool:
        """No load reads it, nothing below goes on from it, and the node does not need it to stay."""
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
        return bool(node.host.pages[0]) and node not in self._going
