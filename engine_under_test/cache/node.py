"""A node of the radix tree: a range of tokens and the pages that hold them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

PageKey = tuple[int, ...]


@dataclass(slots=True)
class HostSide:
    """The copy of a node on the host; lists are by component."""

    pages: list[list[int]]  # one per page of the key, or none
    pins: list[int]  # loads that read these pages
    num_hits: int = 1  # the insertion of the node, and each match of it
    is_filling: bool = False  # a backup of the node is in flight

    @classmethod
    def of_nothing(cls, num_components: int) -> "HostSide":
        return cls([[] for _ in range(num_components)], [0] * num_components)

    def split(self, num_pages: int) -> "HostSide":
        """Split off the first `num_pages` and return them; this object keeps the rest."""
        first = [pages[:num_pages] for pages in self.pages]
        self.pages = [pages[num_pages:] for pages in self.pages]
        return HostSide(first, list(self.pins), self.num_hits, self.is_filling)


@dataclass(slots=True, eq=False)
class Node:
    """Tokens [start, end) of every prefix that contains this node.

    A node is a tombstone in a component in which it is not live while others are; a node that is live in none has
    pages on the host only.
    """

    id: int
    namespace: int
    parent: "Node | None"
    start: int
    key: list[int]
    handles: list[int]  # a page per `page_size` tokens
    live: list[bool]  # by component: does the device hold the pages?
    locks: list[int]  # by component: the receipts that cover the node
    host: HostSide
    last_used: int = 0
    children: dict[PageKey, "Node"] = field(default_factory=dict)

    @property
    def end(self) -> int:
        return self.start + len(self.key)

    @property
    def num_pages(self) -> int:
        return len(self.handles)

    @property
    def is_leaf(self) -> bool:
        return not self.children

    @property
    def is_device_leaf(self) -> bool:
        """Is no child of the node on the device?"""
        return not any(True in child.live for child in self.children.values())

    @property
    def is_on_device(self) -> bool:
        """Does the device hold pages of the node?"""
        return True in self.live

    @property
    def has_copy(self) -> bool:
        """Does the host hold pages of the node?"""
        return any(self.host.pages)

    @property
    def is_locked(self) -> bool:
        """Does any receipt cover the node?"""
        return any(self.locks)

    @property
    def in_tree(self) -> bool:
        """False for a root and for a node that was removed."""
        return self.parent is not None

    def upward(self) -> "Iterator[Node]":
        """This node and its ancestors without the root; empty if the node is not in the tree."""
        node: Node | None = self
        while node is not None and node.in_tree:
            yield node
            node = node.parent

    def common_len(self, tokens: Sequence[int], *, page_size: int) -> int:
        """The number of tokens, in whole pages, that this node's key has in common with `tokens` from `start` on."""
        limit = min(len(self.key), (len(tokens) - self.start) // page_size * page_size)
        if tokens[self.start : self.start + limit] == self.key[:limit]:
            return limit
        length = 0
        while self.key[length : length + page_size] == tokens[self.start + length : self.start + length + page_size]:
            length += page_size
        return length


def ends_within(node: Node, limit: int) -> bool:
    """Does some branch through `node` end fewer than `limit` tokens behind it?"""
    stack = [(node, limit)]
    while stack:
        below, length = stack.pop()
        if length > 0:
            if below.is_leaf:
                return True
            stack += [(child, length - len(child.key)) for child in below.children.values()]
    return False
