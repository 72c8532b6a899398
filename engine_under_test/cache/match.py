"""How far a prefix is cached: on the device, and together with the copies on the host."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from swarden.engine_under_test.cache.node import Node
from swarden.engine_under_test.cache.tree import RadixTree


class Boundary(NamedTuple):
    """A prefix of `length` tokens, which ends inside or at the end of `node`."""

    node: Node
    length: int


@dataclass(frozen=True, slots=True)
class Match:
    """The longest usable prefix on the device, and its `handles`; valid only until the tree changes."""

    node: Node
    length: int
    handles: list[int]
    reach: Boundary | None = None  # of the longer prefix that a load from the host can restore

    @property
    def farthest(self) -> Boundary:
        """The end of the match after a load."""
        return self.reach or Boundary(self.node, self.length)


def on_device(node: Node, component: int) -> bool:
    return node.live[component]


def on_either(node: Node, component: int) -> bool:
    return node.live[component] or bool(node.host.pages[component])


def longest(tree: RadixTree, path: Iterable[tuple[Node, int]], has: Callable[[Node, int], bool]) -> Boundary:
    """The last boundary on a path from a root that a reader can start from; `has` is true for nodes with pages.

    A component needs every page of the last `tail_len` tokens.
    """
    best = Boundary(tree.nowhere, 0)
    dead_until = [0] * len(tree.tail_lens)
    for node, length in path:
        end, is_usable = node.start + length, True
        for component, tail_len in enumerate(tree.tail_lens):
            if not has(node, component):
                dead_until[component], is_usable = end, False
            elif dead_until[component] and end - dead_until[component] < tail_len:
                is_usable = False
        if is_usable:
            best = Boundary(node, end)
    return best


def pages_between(bottom: Node, top: int, end: int, page_size: int) -> Iterator[tuple[Node, int]]:
    """Yield, from `bottom` upward, each node that overlaps [top, end), with the number of its pages in that range."""
    for node in bottom.upward():
        if node.end <= top:
            break
        begin, stop = max(node.start, top), min(node.end, end)
        if begin < stop:
            yield node, (stop - begin) // page_size


def num_missing(tree: RadixTree, boundary: Boundary) -> list[int]:
    """Per component, the number of pages that a reader of `boundary` needs and the device does not hold."""
    missing, (bottom, end) = [], boundary
    for index, length in enumerate(tree.covered_lens(end)):
        walk = pages_between(bottom, end - length, end, tree.page_size)
        missing.append(sum(pages for node, pages in walk if not node.live[index]))
    return missing
