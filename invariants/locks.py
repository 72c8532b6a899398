"""Locks on the tree, and the receipts that stand for them."""

from collections import Counter
from collections.abc import Sequence

from invariants.invariant import invariant, state_invariant
from invariants.transition import Transition, When
from invariants.view import TRANSFER_KINDS, NodeView, RecordView, Snapshot
from invariants.violation import Evidence
from invariants.windows import goes_on_at, lookback, tail_len
from invariants.wording import node_name, unit_of

RECORD_KINDS = frozenset({"request", "session", "transfer"})  # who may own a record, and lock with it
UNLIMITED = 1 << 62


def readers_are_only_counted(change: Transition) -> bool:
    return change.after.receipts is None


@state_invariant(needs=("nodes", "receipts"), reads=("nodes", "receipts"))
def locks_equal_their_receipts(change: Transition) -> Evidence:
    """A node counts, per component, exactly the receipts that are out and cover it."""
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
                    yield node_name(node_id), f"has {locks} {component.pool} locks, {out} receipts cover it"


@invariant(When.OP, needs=("records",), given=readers_are_only_counted)
def readers_are_counted(change: Transition) -> Evidence:
    """A cached unit whose readers are counted, and not known, has as many as there are rows that name it."""
    after, named = change.after, Counter[tuple[str, int]]()
    for record in after.records or ():
        for component, units in zip(after.components, record.units, strict=True):
            named.update([(component.pool, unit) for unit in units if unit])
    for pool in after.pools:
        for holding in pool.holdings:
            for unit in holding.units if holding.cached else ():
                if named[pool.name, unit] != holding.locks:
                    counted = f"{holding.locks} readers are counted"
                    yield unit_of(pool, unit), f"{counted}, yet {named[pool.name, unit]} rows name it"


@state_invariant(needs=("nodes",), reads=("nodes",))
def locks_nest(change: Transition) -> Evidence:
    """A node is locked wherever the whole prefix is read at least as often as in its windows and as below it.

    So a node is bound to its parent, and judged where either is different.
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
                    yield node_name(node.id), f"has {own} {pool} locks below {limit} on {node_name(node.parent)}"
            for other in windowed:
                for node in after.nodes or ():
                    if node.locks[other] > node.locks[index]:
                        inner = f"{node.locks[other]} {components[other].pool} locks"
                        yield node_name(node.id), f"has {inner}, yet {node.locks[index]} {pool} locks"


@state_invariant(needs=("receipts", "records"), reads=("receipts", "records"))
def receipts_belong_to_holders(change: Transition) -> Evidence:
    """Each record has a receipt that is out and its own, and each receipt has a record that will return it.

    A record that is given up while a pass reads under its lock leaves the receipt to a fence.
    """
    after = change.after
    kept = {record.receipt: record.owner for record in after.records or ()}
    out = {receipt.id: receipt.holder for receipt in after.receipts or () if receipt.holder.kind in RECORD_KINDS}
    if kept != out or len(kept) != len(after.records or ()):
        seen: dict[int, RecordView] = {}
        for record in after.records or ():
            if (other := seen.setdefault(record.receipt, record)) is not record:
                yield str(record.owner), f"has receipt {record.receipt}, which {other.owner} has too"
            elif record.receipt not in out:
                yield str(record.owner), f"has receipt {record.receipt}, which is not out"
            elif out[record.receipt] != record.owner:
                yield str(record.owner), f"has receipt {record.receipt}, which {out[record.receipt]} holds"
        for receipt in sorted(out.keys() - kept.keys()):
            yield f"receipt {receipt}", f"held by {out[receipt]}, who has no record with it"


@state_invariant(
    needs=("nodes", "receipts", "windowed"),
    reads=("nodes", "receipts"),
)
def locked_windows_are_live(change: Transition) -> Evidence:
    """What a lock covers in a component with a window is there.

    A transfer's lock also covers what it brings, and what lay dead between that which it takes.
    """
    has_same_receipts = change.after.receipts is change.before.receipts
    nodes = change.changes.nodes if has_same_receipts or not change.after.transfers else change.after.nodes or ()
    for index, component in enumerate(change.after.components):
        if component.window is not None:
            for node in nodes:
                if node.locks[index] and not node.live[index] and _has_readers(change.after, node, index):
                    yield node_name(node.id), f"is a {component.pool} tombstone under {node.locks[index]} locks"


@invariant(When.OP, needs=("nodes", "receipts", "records"))
def locks_cover_what_is_read(change: Transition) -> Evidence:
    """A record's lock covers all that its next token reads of the tree, and in a window no more than that in pages.

    What passes in flight read beside that is units_in_flight_are_pinned's business.
    A lock on a whole long node would keep a small pool from everybody (sglang issue 27210).
    """
    after = change.after
    windows = [component.window for component in after.components]
    for record in change.changes.records:
        receipt, path = after.receipt_by_id.get(record.receipt), after.path(record.node)
        if receipt is None or not path:
            continue
        ids = [node.id for node in path]
        for index, window in enumerate(windows):
            covered = receipt.covers[index]
            count = len(covered)
            if window is None and count == len(ids) and list(covered) == ids:
                continue
            top = 0 if window is None else max(0, goes_on_at(record) - lookback(window))
            if list(covered) != ids[:count] or (count < len(ids) and path[count].end > top):
                yield from _uncovered(after, record, index, [n.id for n in path if n.end > top and n.id not in covered])
            elif count and window is not None:
                covered_len, most = path[0].end - path[count - 1].start, tail_len(window, after.limits.page_size)
                if covered_len > most:
                    pool = after.components[index].pool
                    yield str(record.owner), f"locks {covered_len} tokens of {pool}, at most {most} are read"


def _has_readers(snapshot: Snapshot, node: NodeView, component: int) -> bool:
    """Does anybody but a transfer have a node locked?"""
    receipts = [receipt for receipt in snapshot.receipts or () if receipt.holder.kind in TRANSFER_KINDS]
    return node.locks[component] > sum(node.id in receipt.covers[component] for receipt in receipts)


def _nests(snapshot: Snapshot, node: NodeView, whole: Sequence[int]) -> bool:
    return all(max(node.locks) <= node.locks[index] <= _locks_above(snapshot, node, index) for index in whole)


def _locks_above(snapshot: Snapshot, node: NodeView, index: int) -> int:
    parent = snapshot.node_by_id.get(node.parent)
    return parent.locks[index] if parent is not None else UNLIMITED


def _uncovered(snapshot: Snapshot, record: RecordView, component: int, nodes: list[int]) -> Evidence:
    for node in nodes:
        pool = snapshot.components[component].pool
        yield str(record.owner), f"reads {node_name(node)}, which receipt {record.receipt} does not cover in {pool}"
