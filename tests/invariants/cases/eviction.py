"""Evictions that stop too early, or in the wrong order."""

from dataclasses import replace

from swarden.invariants.contracts.eviction import (
    EvictionCode,
    dead_interior_is_evicted_first,
    eviction_is_least_recently_used,
    evictions_free_what_is_needed,
    idle_branches_keep_their_window,
)
from swarden.invariants.events import Demoted, Evicted, Removed, Split, Tombstoned
from swarden.invariants.transition import Transition
from swarden.invariants.view import NodeView
from swarden.invariants.violation import Found, Ref, found
from tests.invariants.builders import AFTER, LIMITS, broken, healthy, idle

# One live branch of 24 tokens, n1 and n2, where n1 is out of the window; and the unlocked leaves n3 and n4.
BRANCHES = replace(
    AFTER,
    nodes=(
        NodeView(1, 0, 0, 0, range(8), ((1, 2), (1, 2)), (True, True), (0, 0), last_used=5),
        NodeView(2, 1, 0, 8, range(8, 24), ((3, 4, 5, 6), (3, 4, 5, 6)), (True, True), (0, 0), last_used=5),
        NodeView(3, 0, 0, 0, range(50, 54), ((7,), (7,)), (True, True), (0, 0), last_used=2),
        NodeView(4, 0, 0, 0, range(60, 64), ((8,), (8,)), (True, True), (0, 0), last_used=4),
    ),
    receipts=(),
)

ALL_NODES = BRANCHES.nodes or ()
WITHOUT_N3 = (*ALL_NODES[:2], ALL_NODES[3])
DEAD_N2 = ALL_NODES[1]._replace(units=((3, 4, 5, 6), (0, 0, 0, 0)), live=(True, False))


def evicting_to(*events, nodes) -> Transition:
    return idle(*events, before=BRANCHES, after=replace(BRANCHES, nodes=nodes))


def taking_n2(*, need):
    """For `need` windowed pages an eviction takes the four of n2, in the tail, and not the two dead ones of n1."""
    evicted = Evicted((("swa", need),), (("swa", 4),), (("swa", 4),))
    return evicting_to(Tombstoned(2, "swa", True), evicted, nodes=(ALL_NODES[0], DEAD_N2, *ALL_NODES[2:]))


def eviction(*events) -> Transition:
    return idle(*events, before=BRANCHES)


def writing_back(*events, copies):
    """A step with write-back; the host has a copy of n4, and `copies` of n3, which was used before n4."""
    copied = [node._replace(copies=((), ()), pins=(0, 0)) for node in ALL_NODES]
    copied[2:] = [copied[2]._replace(copies=copies), copied[3]._replace(copies=((2,), (2,)))]
    return idle(*events, before=replace(BRANCHES, nodes=tuple(copied), limits=LIMITS._replace(writes_back=True)))


def with_recently_used_n4(*events):
    nodes = (*ALL_NODES[:3], ALL_NODES[3]._replace(last_used=9))
    return idle(*events, before=replace(BRANCHES, nodes=nodes))


def dead_spared(victim: int, dead: int) -> Found:
    """The violation of evicting a tail from the windowed pool before the dead interior node."""
    code = EvictionCode.WINDOW_BEFORE_DEAD_INTERIOR
    return found(Ref("node", victim), code, pool="swa", dead=Ref("node", dead))


def younger(victim: int, last_used: int, pool: str, older: int, older_last_used: int) -> Found:
    values = {"pool": pool, "last_used": last_used, "older": Ref("node", older), "older_last_used": older_last_used}
    return found(Ref("node", victim), EvictionCode.YOUNGER_BEFORE_OLDER, **values)


def broken_branch(leaf: int) -> Found:
    return found(Ref("node", leaf), EvictionCode.BRANCH_LOST_ITS_WINDOW, pool="swa", dead=Ref("node", 1))


CASES = [
    broken(
        evictions_free_what_is_needed,
        "stopped-early",
        idle(Evicted((("full", 3),), (("full", 2),), (("full", 1),))),
        found(Ref("pool", pool="full"), EvictionCode.STOPPED_EARLY, need=3, freed=2, left=1),
    ),
    broken(dead_interior_is_evicted_first, "tail-evicted-first", eviction(Removed(3, "swa", True)), dead_spared(3, 1)),
    broken(
        dead_interior_is_evicted_first,
        "tail-evicted-before-the-interior-of-a-split-node",
        eviction(Tombstoned(1, "swa", False), Split(2, 9, 8), Tombstoned(2, "swa", False)),
        dead_spared(2, 9),
    ),
    healthy(
        eviction_is_least_recently_used,
        eviction(
            Removed(3, "swa", True),
            Removed(4, "swa", True),
            Tombstoned(1, "swa", False),
            Removed(2, "full", True),
            Removed(1, "full", False),
        ),
        "childless-tombstone-removed-with-it",
    ),
    broken(
        eviction_is_least_recently_used,
        "younger-leaf-first",
        eviction(Removed(4, "full", True)),
        younger(4, 4, "full", 3, 2),
    ),
    broken(
        eviction_is_least_recently_used,
        "younger-tail-first",
        eviction(Tombstoned(1, "swa", False), Removed(4, "swa", True)),
        younger(4, 4, "swa", 3, 2),
    ),
    broken(
        idle_branches_keep_their_window,
        "leaf-removed-before-dead-pages",
        evicting_to(Removed(3, "swa", True), nodes=WITHOUT_N3),
        broken_branch(3),
    ),
    healthy(idle_branches_keep_their_window, taking_n2(need=3), "too-few-dead-pages"),
    broken(idle_branches_keep_their_window, "enough-dead-pages", taking_n2(need=2), broken_branch(2)),
    broken(
        eviction_is_least_recently_used,
        "older-parent-of-a-demoted-node",
        with_recently_used_n4(Removed(3, "full", True), Demoted(2, "full", True), Removed(4, "full", True)),
        younger(4, 9, "full", 1, 5),
    ),
    broken(
        eviction_is_least_recently_used,
        "write-back-skips-a-copied-node",
        writing_back(Demoted(4, "full", True), copies=((1,), (1,))),
        younger(4, 4, "full", 3, 2),
    ),
]
