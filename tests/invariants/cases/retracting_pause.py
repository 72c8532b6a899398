"""Requests that keep records, locks or units in a pause."""

from dataclasses import replace

from swarden.invariants.contracts.retracting_pause import RetractingPauseCode, paused_engine_holds_nothing
from swarden.invariants.events import Owner, Paused
from swarden.invariants.violation import Ref, found, owner_ref, unit_ref
from tests.invariants.builders import AFTER, R1, broken, idle, receipts

NOTHING_OF_R1 = tuple(
    replace(pool, holdings=[holding for holding in pool.holdings if holding.owner != R1]) for pool in AFTER.pools
)
HELD_BY_FENCE = receipts(holder=Owner("fence", 7))


def paused(*, records=(), pools=NOTHING_OF_R1, receipts=HELD_BY_FENCE):
    """A pause begins while a pass reads the units that r1 had."""
    still = replace(AFTER, records=records, pools=pools, receipts=receipts, is_paused=True)
    return idle(Paused(), before=AFTER, after=still)


def units(owner, pool, *numbers):
    units = tuple(unit_ref(AFTER.pool(pool), number) for number in numbers)
    return found(owner_ref(owner), RetractingPauseCode.UNITS_LEFT, units=units)


CASES = [
    broken(
        paused_engine_holds_nothing,
        "keeps-everything",
        paused(records=AFTER.records, receipts=AFTER.receipts, pools=AFTER.pools),
        found(owner_ref(R1), RetractingPauseCode.RECORD_LEFT, row=1),
        found(Ref("receipt", 1), RetractingPauseCode.RECEIPT_LEFT, holder=R1),
        units(R1, "full", 7, 8),
        units(R1, "swa", 5, 6),
        units(R1, "rows", 1),
    )
]
