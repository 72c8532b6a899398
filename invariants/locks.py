"""Locks on the tree, and the receipts that stand for them."""

from collections import Counter
from itertools import chain, compress
from operator import ge

from invariants.base import Evidence, Transition, When, invariant
from invariants.view import RecordView, Snapshot
from invariants.windows import lookback, tail_len
from invariants.wording import node_name

RECORD_KINDS = frozenset({"request", "session", "transfer"})  # who may own a record, and lock with it
UNLIMITED = 1 << 62


@invariant(When.OP, covers=("LOCK-RECEIPT", "COUNTERS"), needs=("nodes", "receipts"))
def locks_equal_their_receipts(change: Transition) -> Evidence:
    """A node counts, per component, exactly the receipts that are out and cover it."""
    after = change.after
    for index, component in enumerate(after.node_components):
        receipts = dict(Counter(chain.from_iterable([receipt.covers[index] for receipt in after.receipts or ()])))
        counted = dict(compress(zip(after.node_columns.id, component.locks, strict=True), component.locks))
        if counted != receipts:
            for node in sorted(counted.keys() | receipts.keys()):
                locks, out = counted.get(node, 0), receipts.get(node, 0)
                if locks != out:
                    yield node_name(node), f"has {locks} {component.pool} locks, {out} receipts cover it"


@invariant(When.OP, covers=("LOCK-HIER",), needs=("nodes",))
def locks_nest(change: Transition) -> Evidence:
    """A node is locked wherever the whole prefix is read at least as often as in its windows and as below it."""
    after, columns = change.after, change.after.node_columns
    windowed = [component for component in after.node_components if component.window is not None]
    for component in after.node_components:
        if component.window is None:
            locks = dict(zip(columns.id, component.locks, strict=True))
            above = [locks.get(parent, UNLIMITED) for parent in columns.parent]
            if not all(map(ge, above, component.locks)):
                for node, parent, own, limit in zip(columns.id, columns.parent, component.locks, above, strict=True):
                    if own > limit:
                        below = f"{own} {component.pool} locks below {limit} on {node_name(parent)}"
                        yield node_name(node), f"has {below}"
            for other in windowed:
                if not all(map(ge, component.locks, other.locks)):
                    for node, own, inner in zip(columns.id, component.locks, other.locks, strict=True):
                        if inner > own:
                            yield node_name(node), f"has {inner} {other.pool} locks, yet {own} {component.pool} locks"


@invariant(When.OP, covers=("LOCK-RECEIPT",), needs=("receipts", "records"))
def receipts_belong_to_holders(change: Transition) -> Evidence:
    """Each record has a receipt that is out and its own, and each receipt has a record that will return it."""
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


@invariant(When.OP, covers=("LOCK-RECEIPT", "LIVE-NODE", "NO-UAF"), needs=("nodes", "receipts", "windowed"))
def locked_windows_are_live(change: Transition) -> Evidence:
    """What a lock covers in a component with a window is there."""
    for component in change.after.node_components:
        if component.window is not None and not all(compress(component.live, component.locks)):
            for node, live, locks in zip(change.after.node_columns.id, component.live, component.locks, strict=True):
                if locks and not live:
                    yield node_name(node), f"is a {component.pool} tombstone under {locks} locks"


@invariant(When.OP, covers=("LOCK-RECEIPT", "NO-UAF", "WINDOW-BOUND"), needs=("nodes", "receipts", "records"))
def locks_cover_what_is_read(change: Transition) -> Evidence:
    """A record's lock covers all that its next token reads of the tree, and in a window no more than that in pages.

    A lock on a whole long node would keep a small pool from everybody (sglang issue 27210).
    """
    after = change.after
    windows = [component.window for component in after.components]
    for record, path in zip(after.records or (), after.record_paths, strict=True):
        receipt = after.receipt_by_id.get(record.receipt)
        if receipt is None or not path:
            continue
        ids = [node.id for node in path]
        for index, window in enumerate(windows):
            covered = receipt.covers[index]
            count = len(covered)
            if window is None and count == len(ids) and list(covered) == ids:
                continue
            top = 0 if window is None else max(0, record.committed_len - lookback(window))
            if list(covered) != ids[:count] or (count < len(ids) and path[count].end > top):
                yield from _uncovered(after, record, index, [n.id for n in path if n.end > top and n.id not in covered])
            elif count and window is not None:
                covered_len, most = path[0].end - path[count - 1].start, tail_len(window, after.limits.page_size)
                if covered_len > most:
                    pool = after.components[index].pool
                    yield str(record.owner), f"locks {covered_len} tokens of {pool}, at most {most} are read"


def _uncovered(snapshot: Snapshot, record: RecordView, component: int, nodes: list[int]) -> Evidence:
    for node in nodes:
        pool = snapshot.components[component].pool
        yield str(record.owner), f"reads {node_name(node)}, which receipt {record.receipt} does not cover in {pool}"
