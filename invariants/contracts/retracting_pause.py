"""A pause retracts every request: only sessions, transfers, copies and fences keep units beside the cache.

On a server: Memory that a pause is to release stays in use: it leaks, or is overwritten in the pause.
"""

from swarden.invariants.events import COPY_JOB_KINDS, FENCE_KIND, HANDOVER_KIND, OUTSIDE_KIND, SESSION_KIND
from swarden.invariants.invariant import invariant
from swarden.invariants.transition import Transition, When
from swarden.invariants.violation import Code, Evidence, Ref, found, owner_ref, unit_ref

KEEPING = frozenset({SESSION_KIND, HANDOVER_KIND, *COPY_JOB_KINDS})


class RetractingPauseCode(Code):
    RECORD_LEFT = "has a record in a pause, with row {row}"
    RECEIPT_LEFT = "held by {holder} in a pause"
    UNITS_LEFT = "owns {units} in a pause"


def is_paused(change: Transition) -> bool:
    """Is the engine paused?"""
    return change.after.is_paused


@invariant(When.OP, needs=("records",), given=is_paused)
def paused_engine_holds_nothing(change: Transition) -> Evidence:
    """In a pause no request has a record, a lock or a unit; fences, sessions, transfers and host copies keep theirs."""
    after = change.after
    for record in after.records or ():
        if record.owner.kind not in KEEPING:
            yield found(owner_ref(record.owner), RetractingPauseCode.RECORD_LEFT, row=record.row)
    for receipt in after.receipts or ():
        if receipt.holder.kind != FENCE_KIND and receipt.holder.kind not in KEEPING:
            yield found(Ref("receipt", receipt.id), RetractingPauseCode.RECEIPT_LEFT, holder=receipt.holder)
    for pool in after.pools:
        for holding in pool.holdings:
            kind = holding.owner.kind
            if holding.units and not holding.cached and kind != OUTSIDE_KIND and kind not in KEEPING:
                units = tuple(unit_ref(pool, unit) for unit in holding.units)
                yield found(owner_ref(holding.owner), RetractingPauseCode.UNITS_LEFT, units=units)
