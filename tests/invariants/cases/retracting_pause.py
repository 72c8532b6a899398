"""Requests that keep records, locks or units in a pause."""

from dataclasses import replace

from swarden.invariants.contracts.retracting_pause import RetractingPauseCode, paused_engine_holds_nothing
from swarden.invariants.events import Owner, Paused
from swarden.invariants.violation import Ref, found, owner_ref, unit_ref
from tests.invariants.builders import AFTER, R1, R2, broken, healthy, idle, receipts
from tests.invariants.cases.handover import LOCK, R2_RECORD, TAKEN, held_by
from tests.invariants.host_builders import BACKUP, COPYING, LOAD, RECEIPTS, RECORDS, while_copying

NOTHING_OF_R1 = tuple(
    replace(pool, holdings=[holding for holding in pool.holdings if holding.owner != R1]) for pool in AFTER.pools
)
HELD_BY_FENCE = receipts(holder=Owner("fence", 7))


def paused(*, records=(), pools=NOTHING_OF_R1, receipts=HELD_BY_FENCE):
    """A pause begins while a pass reads the units that r1 had."""
    still = replace(AFTER, records=records, pools=pools, receipts=receipts, is_paused=True)
    return idle(Paused(), before=AFTER, after=still)


def paused_while_copying(**parts):
    """A pause begins while both copies are in progress; only they hold units."""
    pools = [
        replace(pool, holdings=[one for one in pool.holdings if one.owner not in (R1, R2)]) for pool in COPYING.pools
    ]
    receipts = [one for one in RECEIPTS if one.holder in (BACKUP, LOAD)]
    still = {"records": (), "pools": tuple(pools), "receipts": tuple(receipts)} | parts
    return while_copying(Paused(), **still, is_paused=True)


def paused_with_transfer(owner):
    """A pause begins while r2 is transferred from another engine, to pages of `owner`."""
    pools = [replace(pool, holdings=[one for one in pool.holdings if one.owner != R1]) for pool in held_by(owner)]
    return paused(
        records=(R2_RECORD._replace(owner=owner),),
        pools=tuple(pools),
        receipts=(*HELD_BY_FENCE, LOCK._replace(holder=owner)),
    )


def units(owner, pool, *numbers):
    units = tuple(unit_ref(AFTER.pool(pool), number) for number in numbers)
    return found(owner_ref(owner), RetractingPauseCode.UNITS_LEFT, units=units)


CASES = [
    healthy(paused_engine_holds_nothing, paused()),
    healthy(paused_engine_holds_nothing, paused_while_copying(), "copies-continue"),
    healthy(paused_engine_holds_nothing, paused_with_transfer(R2_RECORD.owner), "transfers-continue"),
    broken(
        paused_engine_holds_nothing,
        "keeps-everything",
        paused(records=AFTER.records, receipts=AFTER.receipts, pools=AFTER.pools),
        found(owner_ref(R1), RetractingPauseCode.RECORD_LEFT, row=1),
        found(Ref("receipt", 1), RetractingPauseCode.RECEIPT_LEFT, holder=R1),
        units(R1, "full", 7, 8),
        units(R1, "swa", 5, 6),
        units(R1, "rows", 1),
    ),
    broken(
        paused_engine_holds_nothing,
        "loading-request-keeps-its-record",
        paused_while_copying(records=RECORDS[1:], receipts=RECEIPTS[1:]),
        found(owner_ref(R2), RetractingPauseCode.RECORD_LEFT, row=2),
        found(Ref("receipt", 4), RetractingPauseCode.RECEIPT_LEFT, holder=R2),
    ),
    broken(
        paused_engine_holds_nothing,
        "request-keeps-transferred-kv",
        paused_with_transfer(R2),
        found(owner_ref(R2), RetractingPauseCode.RECORD_LEFT, row=2),
        found(Ref("receipt", 2), RetractingPauseCode.RECEIPT_LEFT, holder=R2),
        *(units(R2, pool, *numbers) for pool, numbers in TAKEN.items()),
    ),
]
