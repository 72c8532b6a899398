"""Locks without a holder, and holders without a lock."""

from dataclasses import replace

from swarden.invariants.laws.memory.locks import (
    LockCode,
    ReceiptCode,
    cached_units_count_their_readers,
    locked_nodes_stay_live,
    locks_cover_pages_read,
    locks_extend_to_ancestors,
    node_locks_match_receipts,
    receipts_match_records,
)
from swarden.invariants.view import Fence, ReceiptView
from swarden.invariants.violation import Ref, found, node_ref, owner_ref, request_ref
from tests.invariants.builders import AFTER, R1, R2, after, broken, healthy, idle, nodes, page, receipts, records

ALL_RECEIPTS = AFTER.receipts or ()


def counted(node, code, component, locks, receipts):
    return found(node_ref(node), code, component=component, locks=locks, receipts=receipts)


def unlocked(owner, node, component, receipt=1):
    return found(
        owner_ref(owner), LockCode.READ_WITHOUT_LOCK, node=node_ref(node), receipt=receipt, component=component
    )


CASES = [
    broken(
        node_locks_match_receipts,
        "never-returned",
        after(nodes=nodes(3, locks=(1, 0))),
        counted(3, LockCode.TOO_MANY_LOCKS, "full", 1, 0),
    ),
    broken(
        node_locks_match_receipts,
        "returned-twice",
        after(nodes=nodes(2, locks=(1, 0))),
        counted(2, LockCode.TOO_FEW_LOCKS, "swa", 0, 1),
    ),
    broken(
        locks_extend_to_ancestors,
        "more-locks-than-the-parent",
        after(nodes=nodes(1, locks=(0, 0))),
        found(node_ref(2), LockCode.PARENT_LOCKED_LESS, component="full", locks=1, parent=node_ref(1), parent_locks=0),
    ),
    broken(
        locks_extend_to_ancestors,
        "more-locks-in-the-window",
        after(nodes=nodes(3, locks=(0, 1))),
        found(node_ref(3), LockCode.WINDOW_LOCKED_MORE, window="swa", locks=1, whole="full", whole_locks=0),
    ),
    healthy(
        cached_units_count_their_readers,
        after(
            receipts=None,
            pools=tuple([replace(pool, fenced=[Fence(8, (), (4,))] * (pool.name == "full")) for pool in AFTER.pools]),
            records=records(units=((1, 2, 3, 7, 8, 9), (0, 0, 1, 2, 5, 6))),
        ),
        "reader-left-to-a-fence",
    ),
    broken(
        cached_units_count_their_readers,
        "one-too-many-and-one-too-few",
        after(receipts=None, pools=AFTER.pools, records=records(units=((1, 2, 3, 5, 7, 8), (0, 0, 1, 2, 5, 6)))),
        found(page("full", 4), LockCode.TOO_MANY_READERS, counted=1, tables=0),
        found(page("full", 5), LockCode.TOO_FEW_READERS, counted=0, tables=1),
    ),
    broken(
        receipts_match_records,
        "no-receipt",
        after(receipts=(), records=records(receipt=0)),
        found(request_ref(1), ReceiptCode.MISSING, shared_len=16),
    ),
    broken(
        receipts_match_records,
        "returned-too-early",
        after(receipts=()),
        found(request_ref(1), ReceiptCode.NOT_OUT, receipt=1),
    ),
    broken(
        receipts_match_records,
        "another-holder",
        after(receipts=receipts(holder=R2)),
        found(request_ref(1), ReceiptCode.OF_ANOTHER, receipt=1, holder=R2),
    ),
    broken(
        receipts_match_records,
        "one-receipt-for-two-records",
        after(records=(*records(), *records(owner=R2))),
        found(request_ref(2), ReceiptCode.OF_TWO, receipt=1, other=request_ref(1)),
    ),
    broken(
        receipts_match_records,
        "receipt-without-a-record",
        after(receipts=(*ALL_RECEIPTS, ReceiptView(2, R2, 3, ((3,), (3,))))),
        found(Ref("receipt", 2), ReceiptCode.LOST, holder=R2),
    ),
    broken(
        locked_nodes_stay_live,
        "evicted-under-lock",
        idle(after=replace(AFTER, nodes=nodes(2, live=(True, False)))),
        found(node_ref(2), LockCode.DIED_UNDER_LOCK, component="swa", holder=R1),
    ),
    broken(
        locks_cover_pages_read,
        "window-not-locked",
        after(receipts=receipts(covers=((2, 1), ())), records=records(launched_len=18)),
        unlocked(R1, 2, "swa"),
    ),
]
