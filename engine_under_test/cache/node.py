"""A node of the radix tree: a stretch of tokens and the pages that hold them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

PageKey = tuple[int, ...]


class Component(NamedTuple):
    """What a node holds in one pool; with a window only the last tokens of a prefix are needed."""

    name: str
    window: int | None


@dataclass(slots=True)
class HostSide:
    """What the host tier has of a node: per component its pages there, one per page of the key or none, and `pins`, how
    many loads read them.

    `num_hits` counts its publishing and each time that it was found; `is_filling` while a backup of it is under way.
    """

    pages: list[list[int]]
    pins: list[int]
    num_hits: int = 1
    is_filling: bool = False

    @classmethod
    def of_nothing(cls, num_components: int) -> "HostSide":
        return cls([[] for _ in range(num_components)], [0] * num_components)

    def split(self, num_pages: int) -> "HostSide":
        """Keep what lies behind the first `num_pages`; what those have."""
        first = [pages[:num_pages] for pages in self.pages]
        self.pages = [pages[num_pages:] for pages in self.pages]
        return HostSide(first, list(self.pins), self.num_hits, self.is_filling)


@dataclass(slots=True, eq=False)
class Node:
    """Tokens [start, end) of every prefix that passes here.

    `handles` name one page per `page_size` tokens.  Per component, `live` says whether its pages
    are there (a node that is not live in a windowed component is a tombstone) and `locks` how many
    receipts cover the node.  One that is not live where the whole prefix is kept is on the host alone.
    """

    id: int
    namespace: int
    parent: "Node | None"
    start: int
    key: list[int]
    handles: list[int]
    live: list[bool]
    locks: list[int]
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
        """Has it children on the host at most?"""
        return not any(child.live[0] for child in self.children.values())

    @property
    def in_tree(self) -> bool:
        """False for a root and for a node that was removed."""
        return self.parent is not None

    def upward(self) -> "Iterator[Node]":
        """This node and those above it, up to below the root; nothing for what is not in the tree."""
        node: Node | None = self
        while node is not None and node.in_tree:
            yield node
            node = node.parent

    def common_len(self, tokens: Sequence[int], *, page_size: int) -> int:
        """How many leading tokens of this node's key `tokens` has at [start, …), in whole pages."""
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
        below, left = stack.pop()
        if left > 0:
            if below.is_leaf:
                return True
            stack += [(child, left - len(child.key)) for child in below.children.values()]
    return False
