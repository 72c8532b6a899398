"""Copies that no prompt can match, and copying from or to units that were freed."""

from swarden.invariants.events import Owner
from swarden.invariants.laws.memory.host import HostCode, cached_nodes_are_reachable, copies_keep_both_ends
from swarden.invariants.view import Holding
from swarden.invariants.violation import found, node_ref, owner_ref
from tests.invariants.builders import broken, page
from tests.invariants.host_builders import BACKUP, COPYING, LOAD, RECEIPTS, host_pools, while_copying, with_node


def copied(node, **changes):
    return while_copying(nodes=with_node(COPYING, node, **changes))


def of_owner(name, owner, units):
    """The pools while both copies are in progress, where another owner has units of one of them."""
    kept = [holding for holding in COPYING.pool(name).holdings if holding.units != units]
    return while_copying(pools=host_pools(name, holdings=[*kept, Holding(owner, units, cached=False)]))


def lost(code, pool, job, owner, *units):
    return tuple(found(page(pool, unit), code, job=owner_ref(job), owner=owner) for unit in units)


CASES = [
    broken(
        cached_nodes_are_reachable,
        "parent-neither-on-device-nor-host",
        copied(3, live=(False, True), copies=((), (1, 2))),
        found(node_ref(3), HostCode.WINDOW_ALONE, component="full"),
        found(node_ref(4), HostCode.PREFIX_GONE, component="full", parent=node_ref(3)),
    ),
    broken(
        copies_keep_both_ends,
        "no-receipt",
        while_copying(receipts=[receipt for receipt in RECEIPTS if receipt.id != 2]),
        found(owner_ref(BACKUP), HostCode.NO_RECEIPT, receipt=2),
    ),
    broken(
        copies_keep_both_ends,
        "host-copy-dropped-while-read",
        of_owner("host full", Owner("backup", 3), (5, 6)),
        *lost(HostCode.READ_AFTER_FREE, "host full", LOAD, Owner("backup", 3), 5, 6),
    ),
    broken(
        copies_keep_both_ends,
        "owned-by-the-tree-before-it-is-written",
        of_owner("full", Owner("tree", 4), (11, 12)),
        *lost(HostCode.WRITTEN_AFTER_FREE, "full", LOAD, Owner("tree", 4), 11, 12),
    ),
    broken(
        copies_keep_both_ends,
        "not-pinned",
        copied(4, pins=(0, 1)),
        found(node_ref(4), HostCode.TOO_FEW_PINS, pool="host full", pins=0, loads=1),
    ),
    broken(
        copies_keep_both_ends,
        "pinned-without-a-load",
        copied(3, pins=(0, 1)),
        found(node_ref(3), HostCode.TOO_MANY_PINS, pool="host swa", pins=1, loads=0),
    ),
]
