"""Locks in a window that cover tombstones, or more pages than are read."""

from swarden.invariants.contracts.window_locks import WindowLockCode, locked_windows_are_live, window_locks_are_minimal
from swarden.invariants.violation import found, node_ref, request_ref
from tests.invariants.builders import after, broken, nodes, receipts

CASES = [
    broken(
        locked_windows_are_live,
        "tombstone-locked",
        after(nodes=nodes(2, live=(True, False))),
        found(node_ref(2), WindowLockCode.TOMBSTONE_LOCKED, component="swa", locks=1),
    ),
    broken(
        window_locks_are_minimal,
        "whole-branch-locked",
        after(receipts=receipts(covers=((2, 1), (2, 1)))),
        found(request_ref(1), WindowLockCode.TOO_MUCH_LOCKED, component="swa", locked_len=16, most=8),
    ),
]
