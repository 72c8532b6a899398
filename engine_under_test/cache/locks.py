"""Locks on the tree: pages that a receipt covers cannot be evicted.

In each component a lock covers the nodes that a reader at its end needs: all nodes from the root, or those of the last
tokens, in whole pages:

    |root ..... |  covered in one component  ...........|
                             | covered in another .......|
                                                     node
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from swarden.engine_under_test.cache.node import Node
from swarden.engine_under_test.cache.tree import RadixTree
from swarden.engine_under_test.errors import AccountingError
from swarden.invariants.events import Locked, Unlocked


@dataclass(frozen=True, slots=True, eq=False)
class LockReceipt:
    """Proof of a lock; `unlock` takes it back once.  `lens` are the covered tokens up to `node.end`, by component.

    The receipt is opaque to its holder.  A split below or above keeps it valid: it counts tokens, not nodes.
    """

    id: int
    node: Node
    lens: tuple[int, ...]

    def segment(self, component: int) -> Iterator[Node]:
        """The nodes that the receipt covers in one component, from `node` upward."""
        reached, top = self.node.end, self.node.end - self.lens[component]
        for node in self.node.upward():
            if reached <= top:
                return
            yield node
            reached = node.start
        if reached > top:
            raise AccountingError(f"receipt {self.id}: nodes that it covers up to {reached} left the tree while locked")


class LockDesk:
    """Issues receipts and takes them back; keeps the receipts that are valid."""

    def __init__(self, tree: RadixTree) -> None:
        self._tree = tree
        self._num_receipts = 0
        self._out: dict[int, LockReceipt] = {}

    def lock(self, node: Node, start: int | None = None) -> LockReceipt:
        """Protect the pages that a reader at the end of `node` needs; with `start`, the pages of [start, end)."""
        self._num_receipts += 1
        lens = self._tree.covered_lens(node.end)
        if start is not None:
            lens = tuple(node.end - component.locked_from(start) for component in self._tree.components)
        receipt = self._out[self._num_receipts] = LockReceipt(self._num_receipts, node, lens)
        for length in receipt.lens:
            self._cut(node, node.end - length)
        for component in range(len(receipt.lens)):
            for covered in receipt.segment(component):
                self._protect(covered, component)
        if self._tree.observer:
            self._tree.observer.notice(Locked(receipt.id, node.id))
        return receipt

    def unlock(self, receipt: LockReceipt) -> None:
        """Release the lock of a receipt; raises AccountingError for a receipt that was released or replaced before."""
        self._check_out(receipt)
        del self._out[receipt.id]
        for component in range(len(receipt.lens)):
            self._release(list(receipt.segment(component)), component)
        if self._tree.observer:
            self._tree.observer.notice(Unlocked(receipt.id, receipt.node.id))

    def slide(self, receipt: LockReceipt, frontiers: Mapping[str, int]) -> LockReceipt:
        """Release, in each of these components, the part below the frontier, which no later token reads.

        Returns a receipt with the same id, which replaces the old one; the same receipt if there is nothing to release.
        """
        self._check_out(receipt)
        lens = list(receipt.lens)
        for index, component in enumerate(self._tree.components):
            frontier = frontiers.get(component.name, 0)
            if frontier > receipt.node.end - lens[index]:
                frontier = min(frontier, receipt.node.end)
                self._cut(receipt.node, frontier)
                self._release([node for node in receipt.segment(index) if node.end <= frontier], index)
                lens[index] = receipt.node.end - frontier
                receipt = self._out[receipt.id] = LockReceipt(receipt.id, receipt.node, tuple(lens))
        return receipt

    def _check_out(self, receipt: LockReceipt) -> None:
        if self._out.get(receipt.id) is not receipt:
            raise AccountingError(f"receipt {receipt.id}: released, or replaced by a slide, before")

    def _cut(self, node: Node, top: int) -> None:
        """Split the node at or above `node` that contains position `top`, so that the lock covers no unread token."""
        for above in node.upward():
            if above.start < top < above.end:
                self._tree.split(above, top - above.start)
                return

    def _protect(self, node: Node, component: int) -> None:
        node.locks[component] += 1
        if node.locks[component] == 1 and node.live[component]:
            self._tree.evictable[component] -= node.num_pages
            self._tree.protected[component] += node.num_pages

    def _release(self, nodes: list[Node], component: int) -> None:
        for node in nodes:
            if node.locks[component] <= 0:
                name = self._tree.components[component].name
                raise AccountingError(f"node {node.id}: {name} unlocked, but no receipt locks it")
            node.locks[component] -= 1
            if not node.locks[component]:
                if node.live[component]:
                    self._tree.protected[component] -= node.num_pages
                    self._tree.evictable[component] += node.num_pages
                self._tree.candidates.offer(node)
