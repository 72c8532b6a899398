"""Locks on the tree, their receipts, and reader counts.

On a server: With a lock too few a page is evicted while a request reads it: a wrong answer. With one too many it can
never be evicted: memory is lost, until no request fits.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import chain

from swarden.invariants.events import HANDOVER_KIND, REQUEST_KIND, SESSION_KIND
from swarden.invariants.invariant import invariant, state_invariant
from swarden.invariants.transition import Transition, When
from swarden.invariants.view import NodeView, ReceiptView, RecordView, Snapshot
from swarden.invariants.violation import Code, Evidence, Ref, found, node_ref, owner_ref, unit_ref
from swarden.invariants.windows import lookback, next_position

RECORD_KINDS = frozenset({REQUEST_KIND, SESSION_KIND, HANDOVER_KIND})  # may own a record and hold its lock
UNLIMITED = 1 << 62


class LockCode(Code):
    TOO_MANY_LOCKS = "has {locks} {component} locks, but {receipts} receipts cover it"
    TOO_FEW_LOCKS = "has {locks} {component} locks, but {receipts} receipts cover it"
    TOO_MANY_READERS = "counts {counted} readers, but {tables} tables name it"
    TOO_FEW_READERS = "counts {counted} readers, but {tables} tables name it"
    PARENT_LOCKED_LESS = "has {locks} {component} locks, but its parent {parent} has {parent_locks}"
    WINDOW_LOCKED_MORE = "has {locks} {window} locks, but {whole_locks} {whole} locks"
    DIED_UNDER_LOCK = "lost its {component} pages, but is locked by {holder}"
    READ_WITHOUT_LOCK = "reads {node}, which receipt {receipt} does not cover in {component}"


class ReceiptCode(Code):
    MISSING = "shares {shared_len} tokens without a receipt"
    OF_TWO = "has receipt {receipt}, which is also that of {other}"
    NOT_OUT = "has receipt {receipt}, which was returned or does not exist"
    OF_ANOTHER = "has receipt {receipt}, which {holder} holds"
    LOST = "held by {holder}, which has no record with it"


def receipts_are_unknown(change: Transition) -> bool:
    """Does the engine lock units without receipts?"""
    return change.after.receipts is None


@state_invariant(needs=("nodes", "receipts"), reads=("nodes", "receipts"))
def node_locks_match_receipts(change: Transition) -> Evidence:
    """Per component, the number of locks of a node is the number of unreturned receipts that cover it."""
    after = change.after
    for index, component in enumerate(after.components):
        covering: dict[int, int] = {}
        for receipt in after.receipts or ():
            for node_id in receipt.covers[index]:
                covering[node_id] = covering.get(node_id, 0) + 1
        counted = {node.id: node.locks[index] for node in after.nodes or () if node.locks[index]}
        if counted != covering:
            for node_id in sorted(counted.keys() | covering.keys()):
                locks, out = counted.get(node_id, 0), covering.get(node_id, 0)
                if locks != out:
                    code = LockCode.TOO_MANY_LOCKS if locks > out else LockCode.TOO_FEW_LOCKS
                    yield found(node_ref(node_id), code, component=component.pool, locks=locks, receipts=out)


@invariant(When.OP, needs=("records",), given=receipts_are_unknown)
def cached_units_count_their_readers(change: Transition) -> Evidence:
    """The reader count of a cached unit is the number of block tables that have it, and of fences that keep it.

    This is for engines that count readers without receipts.
    """
    after, tables = change.after, defaultdict[str, list[Sequence[int]]](list)
    for record in after.records or ():
        for component, table in zip(after.components, record.units, strict=True):
            tables[component.pool].append(table)
    for pool in after.pools:
        num_of = Counter(chain.from_iterable([*tables[pool.name], *[fence.read for fence in pool.fenced]]))
        for holding in pool.holdings:
            is_right = not holding.cached or (not holding.locks and num_of.keys().isdisjoint(holding.units))
            for unit in [] if is_right else [unit for unit in holding.units if num_of.get(unit, 0) != holding.locks]:
                readers = num_of[unit]
                code = LockCode.TOO_MANY_READERS if holding.locks > readers else LockCode.TOO_FEW_READERS
                yield found(unit_ref(pool, unit), code, counted=holding.locks, tables=readers)


@state_invariant(needs=("nodes",), reads=("nodes",))
def locks_extend_to_ancestors(change: Transition) -> Evidence:
    """In a component without a window a node has no more locks than its parent, and no fewer than in any window.

    A node is checked if it or its parent differs from the checked state.
    """
    after, components = change.after, change.after.components
    whole = [index for index, component in enumerate(components) if component.window is None]
    if whole and not all(_nests(after, node, whole) for node in change.changes.relatives):
        windowed = [index for index, component in enumerate(components) if component.window is not None]
        for index in whole:
            pool = components[index].pool
            for node in after.nodes or ():
                limit, own = _locks_above(after, node, index), node.locks[index]
                if own > limit:
                    values = {"component": pool, "locks": own, "parent": node_ref(node.parent), "parent_locks": limit}
                    yield found(node_ref(node.id), LockCode.PARENT_LOCKED_LESS, **values)
            for other in windowed:
                for node in after.nodes or ():
                    if node.locks[other] > node.locks[index]:
                        yield found(
                            node_ref(node.id),
                            LockCode.WINDOW_LOCKED_MORE,
                            window=components[other].pool,
                            locks=node.locks[other],
                            whole=pool,
                            whole_locks=node.locks[index],
                        )


@state_invariant(needs=("receipts", "records"), reads=("receipts", "records"))
def receipts_match_records(change: Transition) -> Evidence:
    """Each record that shares a prefix has an unreturned receipt of its own; each receipt has a record to return it.

    A record that is released while a pass reads under its lock leaves the receipt to a fence.  A record that shares no
    prefix need not have a receipt.
    """
    after = change.after
    records = [record for record in after.records or () if record.receipt or record.protected_len]
    kept = {record.receipt: record.owner for record in records}
    holders = {record.owner for record in records}  # a copy owns the record of a request that has ended before it
    returnable = [lock for lock in after.receipts or () if lock.holder.kind in RECORD_KINDS or lock.holder in holders]
    out = {receipt.id: receipt for receipt in returnable}
    if len(kept) != len(records) or kept != {receipt.id: receipt.holder for receipt in out.values()}:
        first: dict[int, RecordView] = {}
        for record in records:
            yield from _wrong_receipt(record, out, first.setdefault(record.receipt, record))
        for receipt in sorted(out.keys() - kept.keys()):
            yield found(Ref("receipt", receipt), ReceiptCode.LOST, holder=out[receipt].holder)


@invariant(When.OP, needs=("nodes", "receipts"))
def locked_nodes_stay_live(change: Transition) -> Evidence:
    """A node keeps its pages of a component as long as the same receipt covers it there."""
    for node in change.changes.nodes:
        earlier = change.before.node_by_id.get(node.id)
        if earlier is not None and earlier.live != node.live:
            yield from _died_under_lock(change, earlier, node)


@state_invariant(needs=("nodes", "receipts", "records"), reads=("nodes", "receipts", "records"))
def locks_cover_pages_read(change: Transition) -> Evidence:
    """The lock of a record covers all nodes that its next token reads.

    Other laws check the reads of passes in flight.
    """
    for record in change.changes.records:
        receipt = change.after.receipt_by_id.get(record.receipt)
        if receipt is not None:
            yield from _reads_without_lock(change.after, record, receipt)


def _died_under_lock(change: Transition, earlier: NodeView, node: NodeView) -> Evidence:
    for index, component in enumerate(change.after.components):
        for receipt in change.after.receipts or () if earlier.live[index] and not node.live[index] else ():
            former = change.before.receipt_by_id.get(receipt.id)
            if former is not None and node.id in former.covers[index] and node.id in receipt.covers[index]:
                yield found(
                    node_ref(node.id), LockCode.DIED_UNDER_LOCK, component=component.pool, holder=receipt.holder
                )


def _wrong_receipt(record: RecordView, out: dict[int, ReceiptView], first: RecordView) -> Evidence:
    """The violation of the receipt of a record, if any; `first` is the first record with this receipt."""
    subject = owner_ref(record.owner)
    if not record.receipt:
        yield found(subject, ReceiptCode.MISSING, shared_len=record.protected_len)
    elif first is not record:
        yield found(subject, ReceiptCode.OF_TWO, receipt=record.receipt, other=owner_ref(first.owner))
    elif record.receipt not in out:
        yield found(subject, ReceiptCode.NOT_OUT, receipt=record.receipt)
    elif out[record.receipt].holder != record.owner:
        holder = out[record.receipt].holder
        yield found(subject, ReceiptCode.OF_ANOTHER, receipt=record.receipt, holder=holder)


def _reads_without_lock(snapshot: Snapshot, record: RecordView, receipt: ReceiptView) -> Evidence:
    path = snapshot.path(record.node)
    for index, component in enumerate(snapshot.components):
        top = 0 if component.window is None else max(0, next_position(record) - lookback(component.window))
        covered = {*receipt.covers[index]}
        for node in [node for node in path if node.id not in covered and node.end > top]:
            values = {"node": node_ref(node.id), "receipt": record.receipt, "component": component.pool}
            yield found(owner_ref(record.owner), LockCode.READ_WITHOUT_LOCK, **values)


def _nests(snapshot: Snapshot, node: NodeView, whole: Sequence[int]) -> bool:
    return all(max(node.locks) <= node.locks[index] <= _locks_above(snapshot, node, index) for index in whole)


def _locks_above(snapshot: Snapshot, node: NodeView, index: int) -> int:
    parent = snapshot.node_by_id.get(node.parent)
    return parent.locks[index] if parent is not None else UNLIMITED
