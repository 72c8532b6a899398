"""Locks in a windowed component cover only live nodes, and only the pages that are read.

On a server: Pages that no token reads stay locked: the windowed pool is full early, and requests wait.
"""

from swarden.invariants.events import COPY_JOB_KINDS
from swarden.invariants.invariant import state_invariant
from swarden.invariants.transition import Transition
from swarden.invariants.view import NodeView, ReceiptView, Snapshot
from swarden.invariants.violation import Code, Evidence, found, node_ref, owner_ref
from swarden.invariants.windows import tail_len


class WindowLockCode(Code):
    TOMBSTONE_LOCKED = "a tombstone in {component}, but has {locks} locks there"
    TOO_MUCH_LOCKED = "locks {locked_len} tokens of {component}, but reads at most {most}"


@state_invariant(needs=("nodes", "receipts", "windowed"), reads=("nodes", "receipts"))
def locked_windows_are_live(change: Transition) -> Evidence:
    """A node that a lock covers in a component with a window is live there.

    The lock of a backup or load may cover tombstones.
    """
    has_same_receipts = "receipts" in change.changes.unchanged
    nodes = change.changes.nodes if has_same_receipts or not change.after.copy_jobs else change.after.nodes or ()
    for index, component in enumerate(change.after.components):
        if component.window is not None:
            for node in nodes:
                if node.locks[index] and not node.live[index] and _has_readers(change.after, node, index):
                    values = {"component": component.pool, "locks": node.locks[index]}
                    yield found(node_ref(node.id), WindowLockCode.TOMBSTONE_LOCKED, **values)


@state_invariant(needs=("nodes", "receipts", "records", "windowed"), reads=("nodes", "receipts", "records"))
def window_locks_are_minimal(change: Transition) -> Evidence:
    """In a windowed component the lock of a record covers no more tokens than the next token reads, in whole pages.

    A lock on a whole long node can block a small pool for all other requests (sglang issue 27210).
    """
    for record in change.changes.records:
        receipt = change.after.receipt_by_id.get(record.receipt)
        if receipt is not None:
            yield from _locks_too_much(change.after, receipt)


def _locks_too_much(snapshot: Snapshot, receipt: ReceiptView) -> Evidence:
    for index, component in enumerate(snapshot.components):
        if component.window is not None:
            nodes = [snapshot.node_by_id.get(node) for node in receipt.covers[index]]
            locked_len = sum(len(node.key) for node in nodes if node is not None)
            most = tail_len(component.window, snapshot.page_sizes[index])
            if locked_len > most:
                values = {"component": component.pool, "locked_len": locked_len, "most": most}
                yield found(owner_ref(receipt.holder), WindowLockCode.TOO_MUCH_LOCKED, **values)


def _has_readers(snapshot: Snapshot, node: NodeView, component: int) -> bool:
    """Is a node locked by anything but a backup or load?"""
    receipts = [receipt for receipt in snapshot.receipts or () if receipt.holder.kind in COPY_JOB_KINDS]
    return node.locks[component] > sum(node.id in receipt.covers[component] for receipt in receipts)
