"""The prefix tree: its shape, and what is live in it."""

from collections.abc import Sequence

from invariants.invariant import state_invariant
from invariants.transition import Transition
from invariants.view import NodeView, Snapshot
from invariants.violation import Evidence
from invariants.wording import node_name


@state_invariant(needs=("nodes",), reads=("nodes",))
def tree_is_well_formed(change: Transition) -> Evidence:
    """Each node goes on where its parent ends, in whole pages, and no two siblings begin with the same page.

    A node is bound to its parent, so one that is new or elsewhere is judged with its children.
    """
    after = change.after
    is_healthy = (
        len(after.node_by_id) == len(after.nodes or ())
        and all(_has_whole_pages(after, node) for node in change.changes.reshaped)
        and all(_continues_its_parent(after, node) for node in change.changes.moved_relatives)
        and not _has_twins(after, {node.parent for node in change.changes.moved_relatives})
    )
    if not is_healthy:
        yield from _malformed(after)


@state_invariant(needs=("nodes",), reads=("nodes",))
def live_nodes_hold_live_pages(change: Transition) -> Evidence:
    """A node has all of its pages in a component that is live in it, none where it is a tombstone.

    Only a component with a window may be a tombstone, or one of which the host has a copy.
    """
    windows = [component.window for component in change.after.components]
    if not all(_is_as_live_as_it_says(node, windows) for node in change.changes.reshaped):
        for index in range(len(windows)):
            yield from _wrongly_live(change.after, index)


def _continues_its_parent(snapshot: Snapshot, node: NodeView) -> bool:
    parent = snapshot.node_by_id.get(node.parent) if node.parent else None
    if parent is None:
        return not node.parent and not node.start
    return node.start == parent.start + len(parent.key) and node.namespace == parent.namespace


def _has_whole_pages(snapshot: Snapshot, node: NodeView) -> bool:
    pages, rest = divmod(len(node.key), snapshot.limits.page_size)
    return pages > 0 and not rest and [len(units) for units in node.units] == [pages] * len(snapshot.components)


def _has_twins(snapshot: Snapshot, parents: set[int]) -> bool:
    """Do two children of one of these nodes begin with the same page?"""
    page_size = snapshot.limits.page_size
    families = [family for family in map(snapshot.children.get, parents) if family is not None and len(family) > 1]
    return any(len({(one.namespace, *one.key[:page_size]) for one in family}) != len(family) for family in families)


def _is_as_live_as_it_says(node: NodeView, windows: Sequence[int | None]) -> bool:
    return all(
        all(units) if live else (window is not None or _is_copied(node, index)) and not any(units)
        for index, (units, live, window) in enumerate(zip(node.units, node.live, windows, strict=True))
    )


def _is_copied(node: NodeView, component: int) -> bool:
    """Has the host a copy of it?"""
    return bool(node.copies and node.copies[component])


def _malformed(snapshot: Snapshot) -> Evidence:
    page_size, seen = snapshot.limits.page_size, dict[object, int]()
    ids: set[int] = set()
    for node in snapshot.nodes or ():
        name, parent = node_name(node.id), snapshot.node_by_id.get(node.parent)
        if node.id in ids:
            yield name, "is there twice"
        ids.add(node.id)
        if node.parent and parent is None:
            yield name, f"its parent {node_name(node.parent)} is not in the tree"
        elif node.start != (parent.end if parent else 0):
            above = node_name(parent.id) if parent else "the root"
            yield name, f"starts at {node.start}, yet {above} ends at {parent.end if parent else 0}"
        if parent is not None and parent.namespace != node.namespace:
            yield name, f"is of namespace {node.namespace}, its parent of {parent.namespace}"
        if not node.key or len(node.key) % page_size:
            yield name, f"has a key of {len(node.key)} tokens, want whole pages of {page_size}"
        for component, units in zip(snapshot.components, node.units, strict=True):
            if len(units) * page_size != len(node.key):
                yield name, f"has {len(units)} {component.pool} pages for {len(node.key)} tokens"
        first_page = (node.namespace, node.parent, tuple(node.key[:page_size]))
        if (other := seen.setdefault(first_page, node.id)) != node.id:
            yield name, f"begins with the same page as its sibling {node_name(other)}"


def _wrongly_live(snapshot: Snapshot, index: int) -> Evidence:
    pool, window, _ = snapshot.components[index]
    for node in snapshot.nodes or ():
        units, live = node.units[index], node.live[index]
        if not live and window is None and not _is_copied(node, index):
            yield node_name(node.id), f"is a tombstone in {pool}, which has no window"
        elif live and not all(units):
            yield node_name(node.id), f"is live in {pool}, yet has the pages {list(units)}"
        elif not live and any(units):
            yield node_name(node.id), f"is a tombstone in {pool}, yet has the pages {list(units)}"
