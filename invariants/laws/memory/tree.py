"""The prefix tree: its shape, and its live nodes and tombstones.

On a server: A look-up finds the pages of other tokens, which is a wrong answer; or none, and the prompt is computed
again.
"""

from collections.abc import Sequence

from swarden.invariants.invariant import state_invariant
from swarden.invariants.transition import Transition
from swarden.invariants.view import ComponentView, NodeView, Snapshot
from swarden.invariants.violation import Code, Evidence, found, node_ref


class TreeCode(Code):
    ID_TWICE = "two nodes have this id"
    PARENT_GONE = "its parent {parent} is not in the tree"
    GAP = "begins at position {start}, but its parent ends at {parent_end}"
    OTHER_NAMESPACE = "in namespace {namespace}, but its parent is in {of_parent}"
    PARTIAL_PAGE = "has a key of {key_len} tokens, want whole pages of {page_size}"
    WRONG_PAGE_COUNT = "has {pages} {component} pages for {key_len} tokens"
    TWIN = "begins with the same page as its sibling {sibling}"
    TOMBSTONE_WITHOUT_WINDOW = "a tombstone in {component}, which has no window; no copy is on the host"
    LIVE_WITHOUT_PAGES = "live in {component}, but not all of its pages exist (0: none): {pages}"
    TOMBSTONE_WITH_PAGES = "a tombstone in {component}, but has the pages {pages}"
    PARTIAL_COPY = "has the pages {copies} on the host for {want} of {component}"


@state_invariant(needs=("nodes",), reads=("nodes",))
def tree_is_well_formed(change: Transition) -> Evidence:
    """Each node starts where its parent ends, has whole pages, and differs from its siblings in the first page.

    Its id is unique, and its parent is in the tree and in the same namespace.
    If a node is new or in another place, its children are checked, too.
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
def live_nodes_hold_their_pages(change: Transition) -> Evidence:
    """A node has all pages of each live component and none of a tombstone; a copy on the host is complete.

    A node is a tombstone only in a component with a window, or in one of which the host has a copy.  Of a live
    component of states it has at least the last page: a prefix that ends there is continued from that state.
    """
    components = change.after.components
    nodes = change.changes.nodes if change.after.host_pools else change.changes.reshaped
    if not all(_has_pages_if_live(node, components) for node in nodes):
        for index in range(len(components)):
            yield from _wrong_pages(change.after, index)


def _continues_its_parent(snapshot: Snapshot, node: NodeView) -> bool:
    parent = snapshot.node_by_id.get(node.parent) if node.parent else None
    if parent is None:
        return not node.parent and not node.start
    return node.start == parent.start + len(parent.key) and node.namespace == parent.namespace


def _has_whole_pages(snapshot: Snapshot, node: NodeView) -> bool:
    length = len(node.key)
    return (
        length > 0
        and not length % snapshot.limits.page_size
        and [len(units) * size for units, size in zip(node.units, snapshot.page_sizes, strict=True)]
        == [length] * len(node.units)
    )


def _has_twins(snapshot: Snapshot, parents: set[int]) -> bool:
    """Do two children of one of these nodes start with the same page?"""
    page_size = snapshot.limits.page_size
    children = [node for node in snapshot.nodes or () if node.parent in parents]
    return len({(child.parent, child.namespace, *child.key[:page_size]) for child in children}) != len(children)


def _has_pages_if_live(node: NodeView, components: Sequence[ComponentView]) -> bool:
    ends = zip(components, node.copies, node.units, strict=False)
    return not any(_is_partial(part, copies, units) for part, copies, units in ends) and all(
        _has_pages(part, units) if live else (part.window is not None or _is_copied(node, index)) and not any(units)
        for index, (units, live, part) in enumerate(zip(node.units, node.live, components, strict=True))
    )


def _has_pages(component: ComponentView, units: Sequence[int]) -> bool:
    """Has a node all pages that a live node needs?"""
    return any(units[-1:]) if component.has_states else all(units)


def _is_partial(component: ComponentView, copies: Sequence[int], units: Sequence[int]) -> bool:
    return bool(copies) and (len(copies) != len(units) or not _has_pages(component, copies))


def _is_copied(node: NodeView, component: int) -> bool:
    """Has the host a copy of a node's component?"""
    return bool(node.copies and node.copies[component])


def _malformed(snapshot: Snapshot) -> Evidence:
    page_size, first = snapshot.limits.page_size, dict[object, int]()
    ids: set[int] = set()
    for node in snapshot.nodes or ():
        subject, parent = node_ref(node.id), snapshot.node_by_id.get(node.parent)
        if node.id in ids:
            yield found(subject, TreeCode.ID_TWICE)
        ids.add(node.id)
        if node.parent and parent is None:
            yield found(subject, TreeCode.PARENT_GONE, parent=node_ref(node.parent))
        elif node.start != (parent.end if parent else 0):
            yield found(subject, TreeCode.GAP, start=node.start, parent_end=parent.end if parent else 0)
        if parent is not None and parent.namespace != node.namespace:
            yield found(subject, TreeCode.OTHER_NAMESPACE, namespace=node.namespace, of_parent=parent.namespace)
        if not node.key or len(node.key) % page_size:
            yield found(subject, TreeCode.PARTIAL_PAGE, key_len=len(node.key), page_size=page_size)
        for component, units, size in zip(snapshot.components, node.units, snapshot.page_sizes, strict=True):
            if len(units) * size != len(node.key):
                pages, key_len = len(units), len(node.key)
                yield found(subject, TreeCode.WRONG_PAGE_COUNT, component=component.pool, pages=pages, key_len=key_len)
        first_page = (node.namespace, node.parent, tuple(node.key[:page_size]))
        if (other := first.setdefault(first_page, node.id)) != node.id:
            yield found(subject, TreeCode.TWIN, sibling=node_ref(other))


def _wrong_pages(snapshot: Snapshot, index: int) -> Evidence:
    component = snapshot.components[index]
    pool, window = component.pool, component.window
    for node in snapshot.nodes or ():
        units, live = node.units[index], node.live[index]
        if not live and window is None and not _is_copied(node, index):
            yield found(node_ref(node.id), TreeCode.TOMBSTONE_WITHOUT_WINDOW, component=pool)
        elif live and not _has_pages(component, units):
            yield found(node_ref(node.id), TreeCode.LIVE_WITHOUT_PAGES, component=pool, pages=tuple(units))
        elif not live and any(units):
            yield found(node_ref(node.id), TreeCode.TOMBSTONE_WITH_PAGES, component=pool, pages=tuple(units))
        if node.copies and _is_partial(component, node.copies[index], units):
            copies = tuple(node.copies[index])
            yield found(node_ref(node.id), TreeCode.PARTIAL_COPY, component=pool, copies=copies, want=len(units))
