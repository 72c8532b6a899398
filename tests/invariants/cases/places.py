"""Requests in two queues or in none, and pauses in which something goes on."""

from dataclasses import replace

from invariants.events import Launched, Paused, Resumed
from invariants.places import a_paused_engine_stands_still, requests_are_in_one_place
from invariants.view import Owner, RequestView
from tests.invariants.builders import AFTER, R1, R2, after, broken, healthy, idle, receipts, records
from tests.invariants.cases.handover import LOCK, ROOM, held_by
from tests.invariants.host_builders import BACKUP, COPYING, LOAD, RECEIPTS, RECORDS, UNDER_WAY, while_copying

NOTHING_OF_R1 = tuple(
    replace(pool, holdings=[holding for holding in pool.holdings if holding.owner != R1]) for pool in AFTER.pools
)
LEFT_TO_A_FENCE = receipts(holder=Owner("fence", 7))
RUNNING, WAITING = AFTER.requests or ()


def paused(*events, records=(), pools=NOTHING_OF_R1, receipts=LEFT_TO_A_FENCE):
    """A pause begins while a pass reads what r1 had."""
    still = replace(AFTER, records=records, pools=pools, receipts=receipts, is_paused=True)
    return idle(Paused(), *events, before=AFTER, after=still)


def paused_while_copying(**parts):
    """A pause begins while both transfers are under way, which keep what they have, and nobody else has anything."""
    pools = [
        replace(pool, holdings=[one for one in pool.holdings if one.owner not in (R1, R2)]) for pool in COPYING.pools
    ]
    receipts = [one for one in RECEIPTS if one.holder in (BACKUP, LOAD)]
    still = {"records": (), "pools": tuple(pools), "receipts": tuple(receipts)} | parts
    return while_copying(Paused(), **still, is_paused=True)


def paused_with_room(owner):
    """A pause begins while r2 is to come from another engine, on room that is the owner's."""
    pools = [replace(pool, holdings=[one for one in pool.holdings if one.owner != R1]) for pool in held_by(owner)]
    return paused(
        records=(ROOM._replace(owner=owner),),
        pools=tuple(pools),
        receipts=(*LEFT_TO_A_FENCE, LOCK._replace(holder=owner)),
    )


CASES = [
    healthy(requests_are_in_one_place),
    broken(
        requests_are_in_one_place,
        "two-queues",
        after(requests=(RUNNING, WAITING, RUNNING._replace(place="chunked"))),
        ("request r1", "is running and chunked"),
    ),
    broken(
        requests_are_in_one_place,
        "runs-without-a-record",
        after(records=()),
        ("request r1", "is running, yet it has no record"),
    ),
    broken(
        requests_are_in_one_place,
        "waits-with-a-record",
        after(requests=(RUNNING._replace(place="waiting"), WAITING)),
        ("request r1", "is waiting, yet it has row 1"),
    ),
    broken(
        requests_are_in_one_place,
        "two-chunked",
        after(
            requests=(RUNNING._replace(place="chunked"), RequestView(2, "chunked", 0, 5, 0, 1)),
            records=(*records(), *records(owner=R2, row=2)),
        ),
        ("request r2", "is chunked, and so is request r1"),
    ),
    broken(
        requests_are_in_one_place,
        "lost",
        after(requests=(WAITING,)),
        ("request r1", "has row 1, yet it is in no queue"),
    ),
    healthy(a_paused_engine_stands_still, paused()),
    healthy(
        a_paused_engine_stands_still,
        idle(Resumed(), Launched(7, ((1, 20, 21),)), before=replace(AFTER, is_paused=True), after=AFTER),
        "launches-once-it-goes-on",
    ),
    broken(
        a_paused_engine_stands_still,
        "begun-without-a-word",
        idle(before=AFTER, after=replace(AFTER, records=(), pools=NOTHING_OF_R1, receipts=(), is_paused=True)),
        ("engine", "is in a pause, and told nobody"),
    ),
    broken(
        a_paused_engine_stands_still,
        "ended-without-a-word",
        idle(before=replace(AFTER, is_paused=True), after=AFTER),
        ("engine", "has left a pause, and told nobody"),
    ),
    broken(
        a_paused_engine_stands_still,
        "launches",
        paused(Launched(8, ())),
        ("launch 8", "is launched in a pause"),
    ),
    broken(
        a_paused_engine_stands_still,
        "keeps-everything",
        paused(records=AFTER.records, receipts=AFTER.receipts, pools=AFTER.pools),
        ("request r1", "has row 1 in a pause"),
        ("receipt 1", "is out in a pause, held by request r1"),
        ("full pages 7, 8", "owned by request r1 in a pause"),
        ("swa pages 5, 6", "owned by request r1 in a pause"),
        ("rows row 1", "owned by request r1 in a pause"),
    ),
    healthy(requests_are_in_one_place, UNDER_WAY, "loading"),
    broken(
        requests_are_in_one_place,
        "loads-without-a-record",
        while_copying(records=RECORDS[:1]),
        ("request r2", "is loading, yet it has no record"),
    ),
    healthy(a_paused_engine_stands_still, paused_while_copying(), "copying-goes-on"),
    broken(
        a_paused_engine_stands_still,
        "waits-for-a-load",
        paused_while_copying(records=RECORDS[1:], receipts=RECEIPTS[1:]),
        ("request r2", "has row 2 in a pause"),
        ("receipt 4", "is out in a pause, held by request r2"),
    ),
    healthy(a_paused_engine_stands_still, paused_with_room(ROOM.owner), "what-is-to-come-from-another-engine-comes"),
    broken(
        a_paused_engine_stands_still,
        "keeps-what-has-come-from-another-engine",
        paused_with_room(R2),
        ("request r2", "has row 2 in a pause"),
        ("receipt 2", "is out in a pause, held by request r2"),
        ("full pages 9, 10, 11, 12", "owned by request r2 in a pause"),
        ("swa pages 7, 8", "owned by request r2 in a pause"),
        ("rows row 2", "owned by request r2 in a pause"),
    ),
]
