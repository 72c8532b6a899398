"""How far a prefix is cached: on the device, and with what the host could bring back."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from engine_under_test.cache.node import Node
from engine_under_test.cache.tree import RadixTree


class Boundary(NamedTuple):
    """A prefix of `length` tokens, which ends inside or at the end of `node`."""

    node: Node
    length: int


@dataclass(frozen=True, slots=True)
class Match:
    """The longest usable prefix on the device, and its `handles`; `reach` is a longer one, if a load from the host can
    make it.

    Good until the tree changes.
    """

    node: Node
    length: int
    handles: list[int]
    reach: Boundary | None = None

    @property
    def farthest(self) -> Boundary:
        """Where it ends with all that may come back."""
        return self.reach or Boundary(self.node, self.length)


def on_device(node: Node, component: int) -> bool:
    return node.live[component]


def on_either(node: Node, component: int) -> bool:
    return node.live[component] or bool(node.host.pages[component])


def longest(tree: RadixTree, path: Iterable[tuple[Node, int]], has: Callable[[Node, int], bool]) -> Boundary:
    """The last boundary on a path from a root up to which there is all that a reader needs, by what `has` says.

    The whole prefix where it is read whole; of a windowed component no page is dead, or none of the last.
    """
    best, dead_until, windowed = Boundary(tree.nowhere, 0), 0, tree.windowed
    for node, length in path:
        end = node.start + length
        if windowed != 0 and not has(node, 0):
            break
        if windowed is not None and not has(node, windowed):
            dead_until = end
        elif not dead_until or end - dead_until >= tree.tail_len:
            best = Boundary(node, end)
    return best


def pages_between(bottom: Node, top: int, end: int, page_size: int) -> Iterator[tuple[Node, int]]:
    """On the way up from `bottom`, each node that has some of [top, end), with how many pages of it."""
    for node in bottom.upward():
        if node.end <= top:
            break
        begin, stop = max(node.start, top), min(node.end, end)
        if begin < stop:
            yield node, (stop - begin) // page_size


def num_missing(tree: RadixTree, boundary: Boundary) -> list[int]:
    """Per component the pages up to `boundary` that are not on the device, of those that a reader needs there."""
    missing, (bottom, end) = [], boundary
    for index, length in enumerate(tree.covered_lens(end)):
        walk = pages_between(bottom, end - length, end, tree.page_size)
        missing.append(sum(pages for node, pages in walk if not node.live[index]))
    return missing
