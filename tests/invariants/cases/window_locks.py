"""Locks in a window that cover tombstones, or more pages than are read."""

from swarden.invariants.contracts.window_locks import WindowLockCode, locked_windows_are_live, window_locks_are_minimal
from swarden.invariants.view import ReceiptView
from swarden.invariants.violation import found, node_ref, request_ref
from tests.invariants.builders import R1, after, broken, healthy, nodes, receipts
from tests.invariants.host_builders import COPYING, COPYING_CONTINUES, RECEIPTS, while_copying, with_node

CASES = [
    broken(
        locked_windows_are_live,
        "tombstone-locked",
        after(nodes=nodes(2, live=(True, False))),
        found(node_ref(2), WindowLockCode.TOMBSTONE_LOCKED, component="swa", locks=1),
    ),
    healthy(locked_windows_are_live, COPYING_CONTINUES, "tombstone-locked-by-a-load"),
    broken(
        locked_windows_are_live,
        "tombstone-locked-by-a-request",
        while_copying(
            nodes=with_node(COPYING, 4, locks=(2, 2)),
            receipts=(*RECEIPTS, ReceiptView(5, R1, 4, ((4, 3), (4,)))),
        ),
        found(node_ref(4), WindowLockCode.TOMBSTONE_LOCKED, component="swa", locks=2),
    ),
    healthy(window_locks_are_minimal),
    broken(
        window_locks_are_minimal,
        "whole-branch-locked",
        after(receipts=receipts(covers=((2, 1), (2, 1)))),
        found(request_ref(1), WindowLockCode.TOO_MUCH_LOCKED, component="swa", locked_len=16, most=8),
    ),
]
