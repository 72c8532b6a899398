"""The longest cached prefix that a request can start from, by brute force over the nodes."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from invariants.view import NodeView, Snapshot
from invariants.windows import first_needed_page


class Prefix(NamedTuple):
    """`length` tokens, on `pages` of the first component."""

    length: int
    pages: list[int]


def longest_prefix(snapshot: Snapshot, namespace: int, tokens: Sequence[int]) -> Prefix:
    """The largest whole-page prefix of `tokens` that is cached and usable.

    It is resident wherever the whole prefix is read; of each component with a window either no
    page of it is missing, or none of those that the next token reads.  Looks at every page
    boundary, so it does not matter how the nodes are split.
    """
    page_size = snapshot.limits.page_size
    columns = _resident(snapshot, namespace, tokens)
    for count in range(len(columns[0]), 0, -1):
        if all(
            _is_usable(units[:count], component.window, page_size)
            for component, units in zip(snapshot.components, columns, strict=True)
        ):
            return Prefix(count * page_size, columns[0][:count])
    return Prefix(0, [])


def reachable_len(snapshot: Snapshot, namespace: int, tokens: Sequence[int]) -> int:
    """How long a prefix could be used if all came back of which the host has a copy."""
    page_size = snapshot.limits.page_size
    pages = list(cached_pages(snapshot, namespace, tokens))
    for count in range(len(pages), 0, -1):
        if all(
            _is_usable(
                [_is_somewhere(node, place, index) for node, place in pages[:count]], component.window, page_size
            )
            for index, component in enumerate(snapshot.components)
        ):
            return count * page_size
    return 0


def _is_somewhere(node: NodeView, place: int, component: int) -> int:
    """Is there a page of it on the device, or on the host?"""
    return node.units[component][place] or bool(node.copies and node.copies[component])


def cached_pages(snapshot: Snapshot, namespace: int, tokens: Sequence[int]) -> Iterator[tuple[NodeView, int]]:
    """The node of each whole page of `tokens` that the tree knows, and which of its pages it is."""
    parent, position, page_size = 0, 0, snapshot.limits.page_size
    while (node := _child(snapshot, parent, namespace, tokens[position : position + page_size])) is not None:
        count = _common_pages(node.key, tokens[position : position + len(node.key)], page_size)
        for place in range(count):
            yield node, place
        position += count * page_size
        if position < node.end:
            return
        parent = node.id


def _is_usable(units: list[int], window: int | None, page_size: int) -> bool:
    if window is None:
        return all(units)
    return all(units) or all(units[first_needed_page(len(units) * page_size, window, page_size) :])


def _resident(snapshot: Snapshot, namespace: int, tokens: Sequence[int]) -> list[list[int]]:
    """Per component the unit of each page of `tokens` that the tree knows, from the root on."""
    columns: list[list[int]] = [[] for _ in snapshot.components]
    parent, position, page_size = 0, 0, snapshot.limits.page_size
    while (node := _child(snapshot, parent, namespace, tokens[position : position + page_size])) is not None:
        pages = _common_pages(node.key, tokens[position : position + len(node.key)], page_size)
        for column, units in zip(columns, node.units, strict=True):
            column.extend(units[:pages])
        position += pages * page_size
        if position < node.end:
            break
        parent = node.id
    return columns


def _child(snapshot: Snapshot, parent: int, namespace: int, page: Sequence[int]) -> NodeView | None:
    page_size, wanted = snapshot.limits.page_size, list(page)
    if len(wanted) == page_size:
        for node in snapshot.children.get(parent, ()):
            is_candidate = node.namespace == namespace and len(node.key) >= page_size and node.key[0] == wanted[0]
            if is_candidate and list(node.key[:page_size]) == wanted:
                return node
    return None


def _common_pages(key: Sequence[int], tokens: Sequence[int], page_size: int) -> int:
    own, other = list(key), list(tokens)
    if own == other[: len(own)]:
        return len(own) // page_size
    pages = 0
    for start in range(0, min(len(own), len(other)) - page_size + 1, page_size):
        if own[start : start + page_size] != other[start : start + page_size]:
            break
        pages += 1
    return pages
