"""Copies that nobody could use, transfers whose ends are gone, and loads that were not begun or not paid for."""

from dataclasses import replace

from invariants.events import (
    Copied,
    CopyDropped,
    Demoted,
    Dropped,
    Freed,
    Removed,
    Stored,
    Taken,
    Tombstoned,
    TransferEnded,
)
from invariants.host import (
    a_copy_gives_way_to_a_copy,
    copies_equal_their_source,
    copies_go_on_from_copies,
    nothing_is_lost_while_the_host_has_room,
    transfers_keep_both_ends,
    what_is_told_to_be_cached_is,
)
from invariants.view import Holding, Owner
from tests.invariants.builders import PROMPT, R1, TREE, broken, healthy, swapped
from tests.invariants.host_builders import (
    ASKED,
    BACKED_UP,
    BACKUP,
    COPYING,
    FETCHED,
    HOSTED,
    LANDED,
    RECEIPTS,
    SHELVED,
    UNDER_WAY,
    host_pools,
    on_the_shelf,
    while_copying,
    with_node,
)

WRITING_BACK = replace(SHELVED, limits=HOSTED._replace(writes_back=True))
LOST_N2 = "with no copy of its {} pages on the host"


def copied(node, **changes):
    return while_copying(nodes=with_node(COPYING, node, **changes))


def evicting(*events, host_swa_capacity=99, **host_full):
    """With write-back something goes."""
    before = replace(WRITING_BACK, pools=swapped(WRITING_BACK, "host full", **host_full))
    before = replace(before, pools=swapped(before, "host swa", capacity=host_swa_capacity))
    return on_the_shelf(*events, before=before)


def of_owner(name, owner, units):
    """The pools while both transfers are under way, where what one of them had of a pool is somebody else's."""
    kept = [one for one in COPYING.pool(name).holdings if one.units != units]
    return while_copying(pools=host_pools(name, holdings=[*kept, Holding(owner, units, cached=False)]))


GIVING_WAY = (
    Freed("host full", (3, 4), TREE, "dropped", 0),
    CopyDropped(3, ("full",)),
    Taken("host full", (3, 4), BACKUP),
)
COPY_DONE = TransferEnded(BACKED_UP.transfer, None)
A_COPY_FAILED = evicting(Removed(2, "full", True), TransferEnded(3, "the copy failed"))
A_COPY_WAS_UNDER_WAY = replace(evicting(Removed(2, "full", True)), before=replace(COPYING, limits=WRITING_BACK.limits))
A_COPY_IS_STUCK = replace(evicting(Removed(2, "full", True)), after=replace(COPYING, limits=WRITING_BACK.limits))
WRITTEN_THROUGH = on_the_shelf(Removed(2, "full", True))

CASES = [
    healthy(copies_go_on_from_copies, UNDER_WAY),
    healthy(copies_go_on_from_copies, LANDED, "transfers-have-ended"),
    broken(
        copies_go_on_from_copies,
        "part-of-a-node",
        copied(3, copies=((3,), (1, 0))),
        ("node n3", "has the pages [3] on the host for 2 of full"),
        ("node n3", "has the pages [1, 0] on the host for 2 of swa"),
    ),
    broken(
        copies_go_on_from_copies,
        "a-window-alone",
        copied(2, copies=((), (5, 6))),
        ("node n2", "has copies on the host, yet none of full"),
    ),
    broken(
        copies_go_on_from_copies,
        "behind-one-without",
        copied(3, copies=((), ())),
        ("node n4", "has a copy of full, node n3 before it has none"),
    ),
    broken(
        copies_go_on_from_copies,
        "here-behind-one-that-is-there",
        copied(1, live=(False, False)),
        ("node n2", "is live in full, node n1 before it is not"),
    ),
    healthy(transfers_keep_both_ends, UNDER_WAY),
    healthy(transfers_keep_both_ends, LANDED, "transfers-have-ended"),
    broken(
        transfers_keep_both_ends,
        "unlocked",
        while_copying(receipts=[one for one in RECEIPTS if one.id != 2]),
        ("backup b1", "its receipt 2 is not out"),
    ),
    broken(
        transfers_keep_both_ends,
        "locked-by-another",
        while_copying(receipts=[one._replace(holder=R1) for one in RECEIPTS]),
        ("backup b1", "its receipt 2 is not out"),
        ("load l2", "its receipt 3 is not out"),
    ),
    broken(
        transfers_keep_both_ends,
        "evicted-while-it-is-read",
        of_owner("swa", R1, (1, 2)),
        ("swa page 1", "read by backup b1, yet it is owned by request r1"),
        ("swa page 2", "read by backup b1, yet it is owned by request r1"),
    ),
    broken(
        transfers_keep_both_ends,
        "copy-dropped-while-it-is-read",
        of_owner("host full", Owner("backup", 3), (5, 6)),
        ("host full page 5", "read by load l2, yet it is owned by backup b3"),
        ("host full page 6", "read by load l2, yet it is owned by backup b3"),
    ),
    broken(
        transfers_keep_both_ends,
        "freed-while-it-is-written",
        while_copying(pools=host_pools("host swa", free=[5, 6, 7, 8], holdings=COPYING.pool("host swa").holdings[:-1])),
        ("host swa page 5", "written by backup b1, yet it is free"),
        ("host swa page 6", "written by backup b1, yet it is free"),
    ),
    broken(
        transfers_keep_both_ends,
        "the-tree's-before-it-is-written",
        of_owner("full", Owner("tree", 4), (11, 12)),
        ("full page 11", "written by load l2, yet it is owned by tree n4"),
        ("full page 12", "written by load l2, yet it is owned by tree n4"),
    ),
    broken(
        transfers_keep_both_ends,
        "not-pinned",
        copied(4, pins=(0, 1)),
        ("node n4", "has 0 pins on its host full, 1 read it"),
    ),
    broken(
        transfers_keep_both_ends,
        "pinned-for-nobody",
        copied(3, pins=(0, 1)),
        ("node n3", "has 1 pins on its host swa, 0 read it"),
    ),
    healthy(copies_equal_their_source, LANDED),
    broken(
        copies_equal_their_source,
        "torn",
        while_copying(Copied(1, "full", ((4, 8),)), Copied(1, "swa", ()), Copied(2, "swa", ((7, 3), (8, 4)))),
        ("full page 4", "differs from page 8 on the host, its copy"),
        ("swa page 7", "differs from page 3 on the host, its copy"),
        ("swa page 8", "differs from page 4 on the host, its copy"),
    ),
    healthy(a_copy_gives_way_to_a_copy, evicting(*GIVING_WAY, BACKED_UP, free=(9,))),
    broken(
        a_copy_gives_way_to_a_copy,
        "had-room",
        evicting(*GIVING_WAY, BACKED_UP, free=(8, 9)),
        ("node n3", "its copy was given up, and what came in its place had room without"),
    ),
    broken(
        a_copy_gives_way_to_a_copy,
        "in-vain-and-something-is-loaded",
        evicting(*GIVING_WAY, FETCHED, free=(9,)),
        ("node n3", "its copy was given up, and none came in its place"),
    ),
    broken(
        a_copy_gives_way_to_a_copy,
        "in-vain",
        evicting(BACKED_UP, CopyDropped(3, ("full", "swa")), Removed(2, "full", True)),
        ("node n3", "its copy was given up, and none came in its place"),
    ),
    healthy(nothing_is_lost_while_the_host_has_room, evicting(Demoted(3, "full", True), Removed(1, "full", False))),
    healthy(
        nothing_is_lost_while_the_host_has_room,
        evicting(BACKED_UP, COPY_DONE, Removed(2, "full", True)),
        "copied-in-the-same-step",
    ),
    healthy(
        nothing_is_lost_while_the_host_has_room,
        evicting(
            BACKED_UP._replace(pages=(("full", (5, 6), (7, 8)),)), COPY_DONE, Removed(2, "full", True), capacity=3
        ),
        "the-host-is-full-of-newer-copies",
    ),
    healthy(
        nothing_is_lost_while_the_host_has_room,
        evicting(BACKED_UP, Removed(3, "full", True), COPY_DONE),
        "the-host-had-not-answered-yet",
    ),
    healthy(
        nothing_is_lost_while_the_host_has_room,
        evicting(Removed(2, "full", True), capacity=1),
        "larger-than-the-host",
    ),
    healthy(
        nothing_is_lost_while_the_host_has_room,
        evicting(CopyDropped(1, ("full", "swa")), Tombstoned(2, "swa", True), host_swa_capacity=3),
        "its-copy-would-need-the-windows-of-those-before-it-that-were-given-up",
    ),
    broken(
        nothing_is_lost_while_the_host_has_room,
        "removed",
        evicting(Removed(2, "full", True)),
        ("node n2", f"removed for full, {LOST_N2.format('full')}"),
    ),
    broken(
        nothing_is_lost_while_the_host_has_room,
        "its-window-dropped",
        evicting(Tombstoned(2, "swa", True)),
        ("node n2", f"gave up its swa pages, {LOST_N2.format('swa')}"),
    ),
    broken(
        nothing_is_lost_while_the_host_has_room,
        "its-window-not-copied-with-it",
        evicting(BACKED_UP._replace(pages=BACKED_UP.pages[:1]), COPY_DONE, Removed(2, "full", True)),
        ("node n2", f"removed for full, {LOST_N2.format('swa')}"),
    ),
    broken(
        nothing_is_lost_while_the_host_has_room,
        "another-was-copied-for-which-there-was-room-beside-it",
        evicting(
            BACKED_UP._replace(pages=(("full", (5, 6), (7, 8)),)), COPY_DONE, Removed(2, "full", True), capacity=6
        ),
        ("node n2", f"removed for full, {LOST_N2.format('full')}"),
    ),
    healthy(what_is_told_to_be_cached_is, LANDED),
    healthy(
        what_is_told_to_be_cached_is,
        on_the_shelf(Stored(9, 0, 0, 0, ASKED[:8], "full", on_host=False), Dropped(9, 8, "full", on_host=False)),
        "come-and-gone",
    ),
    broken(
        what_is_told_to_be_cached_is,
        "not-told",
        replace(LANDED, events=()),
        ("full", "has +2 cached pages, +0 were told"),
        ("swa", "has +2 cached pages, +0 were told"),
        ("host full", "has +2 cached pages, +0 were told"),
        ("host swa", "has +2 cached pages, +0 were told"),
    ),
    broken(
        what_is_told_to_be_cached_is,
        "gone-too-early-and-come-too-soon",
        while_copying(Dropped(3, 8, "full", on_host=False), Stored(2, 1, 0, 8, PROMPT[8:16], "full", on_host=True)),
        ("full", "has +0 cached pages, -2 were told"),
        ("host full", "has +0 cached pages, +2 were told"),
    ),
]
