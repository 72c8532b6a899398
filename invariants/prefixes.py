"""The cached prefixes after which a request can start, by brute force over the nodes."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from swarden.invariants.events import CopyEnded, Demoted, Evicted, Inserted, Recovered, Removed, Tombstoned
from swarden.invariants.view import NodeView, Snapshot
from swarden.invariants.windows import first_needed_page

CHANGES_CONTENT = (Inserted, Recovered, Tombstoned, Removed, Demoted, Evicted, CopyEnded)  # of the prefix cache

Columns = list[list[int]]  # per component the unit of each cached page of some tokens, 0 for none


class Prefix(NamedTuple):
    """A cached prefix of `length` tokens, on `pages` of the first component."""

    length: int
    pages: list[int]


def longest_prefix(snapshot: Snapshot, namespace: int, tokens: Sequence[int]) -> Prefix:
    """The longest prefix of `tokens` in whole pages that is cached and usable, however the nodes are split."""
    return longest_usable(snapshot, columns_of(snapshot, namespace, tokens))


def longest_usable(snapshot: Snapshot, columns: Columns) -> Prefix:
    """The longest usable prefix of the cached pages in `columns`."""
    for count in range(len(columns[0]), 0, -1):
        if is_usable(snapshot, columns, count):
            return Prefix(count * snapshot.limits.page_size, columns[0][:count])
    return Prefix(0, [])


def is_usable(snapshot: Snapshot, columns: Columns, count: int) -> bool:
    """Can a request start after the first `count` pages?

    A component without a window must have all of these pages; one with a window must have the pages that the next token
    reads.
    """
    page_size = snapshot.limits.page_size
    return len(columns[0]) >= count and all(
        _is_usable(units[:count], component.window, page_size)
        for component, units in zip(snapshot.components, columns, strict=True)
    )


def reachable_len(snapshot: Snapshot, namespace: int, tokens: Sequence[int]) -> int:
    """The length of the longest prefix that would be usable if all copies on the host were restored."""
    pages = list(cached_pages(snapshot, namespace, tokens))
    columns = [
        [_is_somewhere(node, place, index) for node, place in pages] for index, _ in enumerate(snapshot.components)
    ]
    return longest_usable(snapshot, columns).length


def _is_somewhere(node: NodeView, place: int, component: int) -> int:
    """Is a page of a node on the device, or on the host?"""
    return node.units[component][place] or any(node.copies and node.copies[component][place : place + 1])


def cached_pages(snapshot: Snapshot, namespace: int, tokens: Sequence[int]) -> Iterator[tuple[NodeView, int]]:
    """For each whole page of `tokens` in the tree, also in tombstones: its node, and its index there; root first."""
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


def columns_of(snapshot: Snapshot, namespace: int, tokens: Sequence[int]) -> Columns:
    """Per component the unit of each page of `tokens` in the tree, from the root on; 0 for none."""
    columns: Columns = [[] for _ in snapshot.components]
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
