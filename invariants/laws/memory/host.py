"""The host tier: copies of nodes, and copying between the device and the host.

On a server: A prefix comes back from the host with the KV of other tokens: a wrong answer; or it cannot come back at
all.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from swarden.invariants.events import BACKUP_KIND, LOAD_KIND, TREE_KIND, Owner
from swarden.invariants.invariant import state_invariant
from swarden.invariants.transition import Transition
from swarden.invariants.view import CopyJobView, NodeView, Snapshot
from swarden.invariants.violation import Code, Evidence, found, node_ref, owner_ref, unit_ref


class HostCode(Code):
    PREFIX_GONE = "cached in {component}, but its parent {parent} is neither on the device nor on the host"
    WINDOW_ALONE = "cached, but its {component} pages are neither on the device nor on the host"
    NO_RECEIPT = "has no lock of its own: receipt {receipt} was returned, or belongs to another holder"
    READ_AFTER_FREE = "read by {job}, but its owner is {owner}"
    WRITTEN_AFTER_FREE = "written by {job}, but its owner is {owner}"
    TOO_FEW_PINS = "has {pins} pins on its {pool} pages, but {loads} loads read them"
    TOO_MANY_PINS = "has {pins} pins on its {pool} pages, but {loads} loads read them"


class End(NamedTuple):
    """One end of a copy in one component: its pool, its units, and whether they are read or written."""

    pool: str
    units: Sequence[int]
    is_read: bool


@state_invariant(needs=("nodes", "copy_jobs"), reads=("nodes",))
def cached_nodes_are_reachable(change: Transition) -> Evidence:
    """In a component without a window, a cached node and its parent have their pages on the device or on the host.

    Otherwise no prompt can match the node.
    """
    after = change.after
    whole = [index for index, component in enumerate(after.components) if component.window is None]
    for node in change.changes.relatives:
        parent, is_cached = after.node_by_id.get(node.parent), any(node.live) or any(node.copies)
        for index in whole if is_cached else ():
            component = after.components[index].pool
            if not _is_somewhere(node, index):
                yield found(node_ref(node.id), HostCode.WINDOW_ALONE, component=component)
            elif parent is not None and not _is_somewhere(parent, index):
                yield found(node_ref(node.id), HostCode.PREFIX_GONE, component=component, parent=node_ref(parent.id))


@state_invariant(needs=("nodes", "receipts", "copy_jobs"), reads=("pools", "nodes", "receipts", "copy_jobs"))
def copies_keep_both_ends(change: Transition) -> Evidence:
    """Until a copy between device and host ends, the tree owns the units it reads, and the copy the units it writes.

    Each copy holds a lock of its own, and the pins of a node are as many as the loads that read its units on the host.
    A page that is freed before it is copied may get another owner and content (sglang pulls 26728 and 28468).
    """
    after = change.after
    for view in after.copy_jobs or ():
        owner = Owner(BACKUP_KIND if view.to_host else LOAD_KIND, view.id)
        receipt = after.receipt_by_id.get(view.receipt)
        if receipt is None or receipt.holder != owner:
            yield found(owner_ref(owner), HostCode.NO_RECEIPT, receipt=view.receipt)
        for end in _ends(after, view):
            pool = after.pool(end.pool)
            for unit in end.units:
                holder = pool.owner_of.get(unit)
                if (holder is None or holder.kind != TREE_KIND) if end.is_read else holder != owner:
                    code = HostCode.READ_AFTER_FREE if end.is_read else HostCode.WRITTEN_AFTER_FREE
                    yield found(unit_ref(pool, unit), code, job=owner_ref(owner), owner=holder)
    yield from _wrong_pins(after)


def _wrong_pins(snapshot: Snapshot) -> Evidence:
    """Nodes whose number of pins is not the number of loads that read their host units."""
    reads = Counter[tuple[int, int]]()
    for view in snapshot.copy_jobs or ():
        if not view.to_host:
            reads.update((index, unit) for index, units in enumerate(view.there) for unit in units)
    for node in snapshot.nodes or () if reads else [node for node in snapshot.nodes or () if any(node.pins)]:
        for index, copies in enumerate(node.copies):
            pins, loads = node.pins[index], max((reads[index, unit] for unit in copies), default=0)
            if pins != loads:
                code = HostCode.TOO_MANY_PINS if pins > loads else HostCode.TOO_FEW_PINS
                yield found(node_ref(node.id), code, pool=snapshot.host_pools[index], pins=pins, loads=loads)


def _is_somewhere(node: NodeView, component: int) -> bool:
    """Has a node its pages of a component on the device or on the host?"""
    return bool(node.live[component] or (node.copies and node.copies[component]))


def _ends(snapshot: Snapshot, view: CopyJobView) -> Iterator[End]:
    """Both ends of a copy, by component."""
    for index, component in enumerate(snapshot.components):
        yield End(component.pool, view.here[index], is_read=view.to_host)
        yield End(snapshot.host_pools[index], view.there[index], is_read=not view.to_host)
