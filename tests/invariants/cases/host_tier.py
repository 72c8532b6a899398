"""Copies that are made too late, dropped too early, or lack their prefix."""

from dataclasses import replace

from swarden.invariants.contracts.host_tier import (
    HostTierCode,
    dropped_copies_are_replaced,
    evicted_nodes_are_written_back,
    host_copies_follow_their_prefix,
)
from swarden.invariants.events import CopyDropped, CopyEnded, Freed, Removed, Taken, Tombstoned
from swarden.invariants.violation import found, node_ref
from tests.invariants.builders import TREE, broken, with_pool
from tests.invariants.host_builders import (
    BACKUP,
    BACKUP_BEGAN,
    BEFORE_COPYING,
    COPYING,
    HOST_LIMITS,
    LOAD_BEGAN,
    not_copying,
    while_copying,
    with_node,
)

WRITING_BACK = replace(BEFORE_COPYING, limits=HOST_LIMITS._replace(writes_back=True))


def evicting(*events, host_swa_capacity=99, **host_full):
    """A step with write-back and these events; the host pools have these capacities."""
    before = replace(WRITING_BACK, pools=with_pool(WRITING_BACK, "host full", **host_full))
    before = replace(before, pools=with_pool(before, "host swa", capacity=host_swa_capacity))
    return not_copying(*events, before=before)


def lost(code, short, uncopied):
    return found(node_ref(2), code, short=short, uncopied=uncopied)


COPY_REPLACED = (
    Freed("host full", (3, 4), TREE, "dropped", 0),
    CopyDropped(3, ("full",)),
    Taken("host full", (3, 4), BACKUP),
)
BACKUP_ENDED = CopyEnded(BACKUP_BEGAN.job, None)
COPY_FAILED = evicting(Removed(2, "full", True), CopyEnded(3, "the copy failed"))
COPY_WAS_IN_PROGRESS = replace(evicting(Removed(2, "full", True)), before=replace(COPYING, limits=WRITING_BACK.limits))
COPY_IS_IN_PROGRESS = replace(evicting(Removed(2, "full", True)), after=replace(COPYING, limits=WRITING_BACK.limits))
WRITTEN_THROUGH = not_copying(Removed(2, "full", True))


def copied(node, **changes):
    return while_copying(nodes=with_node(COPYING, node, **changes))


CASES = [
    broken(
        host_copies_follow_their_prefix,
        "copy-of-a-window-only",
        copied(2, copies=((), (5, 6))),
        found(node_ref(2), HostTierCode.WINDOW_COPIED_ALONE, component="full"),
    ),
    broken(
        host_copies_follow_their_prefix,
        "parent-without-a-copy",
        copied(3, copies=((), ())),
        found(node_ref(4), HostTierCode.NO_COPY_OF_PREFIX, component="full", parent=node_ref(3)),
    ),
    broken(
        host_copies_follow_their_prefix,
        "live-with-a-demoted-parent",
        copied(1, live=(False, False)),
        found(node_ref(2), HostTierCode.LIVE_BEHIND_A_TOMBSTONE, component="full", parent=node_ref(1)),
    ),
    broken(
        dropped_copies_are_replaced,
        "host-had-free-pages",
        evicting(*COPY_REPLACED, BACKUP_BEGAN, free=(8, 9)),
        found(node_ref(3), HostTierCode.DROPPED_NEEDLESSLY),
    ),
    broken(
        dropped_copies_are_replaced,
        "no-backup-but-a-load",
        evicting(*COPY_REPLACED, LOAD_BEGAN, free=(9,)),
        found(node_ref(3), HostTierCode.NOT_REPLACED),
    ),
    broken(
        evicted_nodes_are_written_back,
        "removed-without-a-copy",
        evicting(Removed(2, "full", True)),
        lost(HostTierCode.REMOVED_UNCOPIED, "full", "full"),
    ),
    broken(
        evicted_nodes_are_written_back,
        "tombstoned-without-a-copy",
        evicting(Tombstoned(2, "swa", True)),
        lost(HostTierCode.TOMBSTONED_UNCOPIED, "swa", "swa"),
    ),
    broken(
        evicted_nodes_are_written_back,
        "another-copied-though-both-fit",
        evicting(
            BACKUP_BEGAN._replace(pages=(("full", (5, 6), (7, 8)),)), BACKUP_ENDED, Removed(2, "full", True), capacity=6
        ),
        lost(HostTierCode.REMOVED_UNCOPIED, "full", "full"),
    ),
]
