"""Locks on the tree: what a receipt covers cannot be evicted.

In a component without a window a lock covers every node from the root; with one, only those that
hold the last `window - 1` tokens, in whole pages:

    |root ..... |  covered without a window  ...........|
                             | covered with one ........|
                                                     node
"""

from collections.abc import Iterator
from dataclasses import dataclass

from engine_under_test.cache.node import Node
from engine_under_test.cache.tree import RadixTree
from engine_under_test.errors import AccountingError
from engine_under_test.events import Locked, Unlocked


@dataclass(frozen=True, slots=True, eq=False)
class LockReceipt:
    """What `unlock` wants back, once.  `lens` are tokens upward from the end of `node`, by component.

    Opaque to whoever holds it.  A split below or above leaves it true: it counts tokens, not nodes.
    """

    id: int
    node: Node
    lens: tuple[int, ...]

    def segment(self, component: int) -> Iterator[Node]:
        """The nodes that the receipt covers in one component, from `node` upward."""
        node: Node | None = self.node
        top = self.node.end - self.lens[component]
        while node is not None and node.end > top:
            if not node.in_tree:
                raise AccountingError(f"receipt {self.id}: node {node.id} has left the tree under its lock")
            yield node
            node = node.parent


class LockDesk:
    """Hands receipts out and takes them back; knows which are out."""

    def __init__(self, tree: RadixTree) -> None:
        self._tree = tree
        self._num_receipts = 0
        self._out: dict[int, LockReceipt] = {}

    def lock(self, node: Node) -> LockReceipt:
        """Protect what a reader of the prefix that ends with `node` needs."""
        self._num_receipts += 1
        receipt = LockReceipt(self._num_receipts, node, self._lens(node))
        self._out[receipt.id] = receipt
        for component in range(len(receipt.lens)):
            for covered in receipt.segment(component):
                self._protect(covered, component)
        if self._tree.observer:
            self._tree.observer.notice(Locked(receipt.id, node.id))
        return receipt

    def unlock(self, receipt: LockReceipt) -> None:
        """Give a receipt back; raises AccountingError for one that was given back, or replaced, before."""
        self._check_out(receipt)
        del self._out[receipt.id]
        for component in range(len(receipt.lens)):
            self._release(list(receipt.segment(component)), component)
        if self._tree.observer:
            self._tree.observer.notice(Unlocked(receipt.id, receipt.node.id))

    def slide(self, receipt: LockReceipt, frontier: int) -> LockReceipt:
        """Give back the windowed part below `frontier`, which no later token reads.

        Returns the receipt to keep in place of the old one, under the same id.
        """
        self._check_out(receipt)
        component = self._tree.windowed
        if component is None or frontier <= receipt.node.end - receipt.lens[component]:
            return receipt
        frontier = min(frontier, receipt.node.end)
        for node in list(receipt.segment(component)):
            if node.start < frontier < node.end:
                self._tree.split(node, frontier - node.start)
        self._release([node for node in receipt.segment(component) if node.end <= frontier], component)
        lens = list(receipt.lens)
        lens[component] = receipt.node.end - frontier
        slid = self._out[receipt.id] = LockReceipt(receipt.id, receipt.node, tuple(lens))
        return slid

    def _check_out(self, receipt: LockReceipt) -> None:
        if self._out.get(receipt.id) is not receipt:
            raise AccountingError(f"receipt {receipt.id}: given back, or replaced by a slide, before")

    def _lens(self, node: Node) -> tuple[int, ...]:
        """Tokens that a lock at the end of `node` covers; splits the node in which the window begins."""
        lens = []
        for component in self._tree.components:
            length = node.end if component.window is None else min(node.end, self._tree.tail_len)
            lens.append(length)
            step, top = node, node.end - length
            while step.start > top:
                assert step.parent is not None, f"node {step.id} starts at {step.start} without a parent"
                step = step.parent
            if length and step.start < top:
                self._tree.split(step, top - step.start)
        return tuple(lens)

    def _protect(self, node: Node, component: int) -> None:
        node.locks[component] += 1
        if node.locks[component] == 1 and node.live[component]:
            self._tree.evictable[component] -= node.num_pages
            self._tree.protected[component] += node.num_pages

    def _release(self, nodes: list[Node], component: int) -> None:
        for node in nodes:
            if node.locks[component] <= 0:
                name = self._tree.components[component].name
                raise AccountingError(f"node {node.id}: {name} unlocked, yet nobody has it locked")
            node.locks[component] -= 1
            if not node.locks[component]:
                if node.live[component]:
                    self._tree.protected[component] -= node.num_pages
                    self._tree.evictable[component] += node.num_pages
                self._tree.candidates.offer(node)
