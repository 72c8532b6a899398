"""Locks that nobody holds, and holders without a lock."""

from dataclasses import replace

from invariants.locks import (
    locked_windows_are_live,
    locks_cover_what_is_read,
    locks_equal_their_receipts,
    locks_nest,
    readers_are_counted,
    receipts_belong_to_holders,
)
from invariants.view import Owner, ReceiptView
from tests.invariants.builders import AFTER, R1, R2, after, broken, healthy, idle, in_flight, nodes, receipts, records
from tests.invariants.cases.handover import HAS_ROOM, RECORDS, ROOM
from tests.invariants.host_builders import COPYING, RECEIPTS, UNDER_WAY, while_copying, with_node

ALL_RECEIPTS = AFTER.receipts or ()

CASES = [
    healthy(locks_equal_their_receipts),
    broken(
        locks_equal_their_receipts,
        "never-returned",
        after(nodes=nodes(3, locks=(1, 0))),
        ("node n3", "has 1 full locks, 0 receipts cover it"),
    ),
    broken(
        locks_equal_their_receipts,
        "returned-twice",
        after(nodes=nodes(2, locks=(1, 0))),
        ("node n2", "has 0 swa locks, 1 receipts cover it"),
    ),
    healthy(locks_nest),
    broken(
        locks_nest,
        "more-below",
        after(nodes=nodes(1, locks=(0, 0))),
        ("node n2", "has 1 full locks below 0 on node n1"),
    ),
    broken(
        locks_nest,
        "more-in-the-window",
        after(nodes=nodes(3, locks=(0, 1))),
        ("node n3", "has 1 swa locks, yet 0 full locks"),
    ),
    healthy(readers_are_counted, after(receipts=None, pools=AFTER.pools)),
    broken(
        readers_are_counted,
        "one-too-many-and-one-too-few",
        after(receipts=None, pools=AFTER.pools, records=records(units=((1, 2, 3, 5, 7, 8), (0, 0, 1, 2, 5, 6)))),
        ("full page 4", "1 readers are counted, yet 0 rows name it"),
        ("full page 5", "0 readers are counted, yet 1 rows name it"),
    ),
    healthy(receipts_belong_to_holders),
    healthy(
        receipts_belong_to_holders,
        in_flight(records=(), receipts=receipts(holder=Owner("fence", 8))),
        "a-lock-left-to-a-fence",
    ),
    healthy(
        receipts_belong_to_holders,
        after(receipts=(*ALL_RECEIPTS, ReceiptView(2, Owner("load", 1), 3, ((3,), (3,))))),
        "a-load-has-no-record",
    ),
    broken(
        receipts_belong_to_holders,
        "returned-too-early",
        after(receipts=()),
        ("request r1", "has receipt 1, which is not out"),
    ),
    broken(
        receipts_belong_to_holders,
        "another-holder",
        after(receipts=receipts(holder=R2)),
        ("request r1", "has receipt 1, which request r2 holds"),
    ),
    broken(
        receipts_belong_to_holders,
        "one-for-two",
        after(records=(*records(), *records(owner=R2))),
        ("request r2", "has receipt 1, which request r1 has too"),
    ),
    broken(
        receipts_belong_to_holders,
        "lost",
        after(receipts=(*ALL_RECEIPTS, ReceiptView(2, R2, 3, ((3,), (3,))))),
        ("receipt 2", "held by request r2, who has no record with it"),
    ),
    healthy(locked_windows_are_live),
    broken(
        locked_windows_are_live,
        "evicted-under-its-lock",
        after(nodes=nodes(2, live=(True, False))),
        ("node n2", "is a swa tombstone under 1 locks"),
    ),
    healthy(locks_cover_what_is_read),
    healthy(
        locks_cover_what_is_read,
        after(receipts=receipts(covers=((2, 1), ()))),
        "given-back-once-the-window-has-passed",
    ),
    broken(
        locks_cover_what_is_read,
        "window-open",
        after(receipts=receipts(covers=((2, 1), ())), records=records(launched_len=18)),
        ("request r1", "reads node n2, which receipt 1 does not cover in swa"),
    ),
    broken(
        locks_cover_what_is_read,
        "prefix-open",
        after(receipts=receipts(covers=((2,), (2,)))),
        ("request r1", "reads node n1, which receipt 1 does not cover in full"),
    ),
    broken(
        locks_cover_what_is_read,
        "whole-branch-pinned",
        after(receipts=receipts(covers=((2, 1), (2, 1)))),
        ("request r1", "locks 16 tokens of swa, at most 8 are read"),
    ),
    healthy(locks_equal_their_receipts, UNDER_WAY, "of-transfers"),
    broken(
        locks_equal_their_receipts,
        "not-returned-by-a-load",
        while_copying(receipts=[one for one in RECEIPTS if one.id != 3], transfers=()),
        ("node n3", "has 2 full locks, 1 receipts cover it"),
        ("node n4", "has 1 full locks, 0 receipts cover it"),
        ("node n4", "has 1 swa locks, 0 receipts cover it"),
    ),
    healthy(locked_windows_are_live, UNDER_WAY, "a-load-is-to-bring-it"),
    broken(
        locked_windows_are_live,
        "somebody-reads-what-a-load-is-to-bring",
        while_copying(
            nodes=with_node(COPYING, 4, locks=(2, 2)),
            receipts=(*RECEIPTS, ReceiptView(5, R1, 4, ((4, 3), (4,)))),
        ),
        ("node n4", "is a swa tombstone under 2 locks"),
    ),
    healthy(locks_cover_what_is_read, idle(before=HAS_ROOM), "behind-what-is-to-come-nobody-reads-the-window"),
    broken(
        locks_cover_what_is_read,
        "the-window-behind-what-is-to-come",
        idle(before=HAS_ROOM, after=replace(HAS_ROOM, records=(*RECORDS, ROOM._replace(allocated_len=10)))),
        ("transfer t2", "reads node n3, which receipt 2 does not cover in swa"),
    ),
]
