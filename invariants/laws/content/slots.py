"""The bytes of slots: they are those that were last written there."""

from swarden.invariants.events import BytesCompared
from swarden.invariants.invariant import invariant
from swarden.invariants.transition import Transition, When
from swarden.invariants.violation import Code, Evidence, found, unit_ref


class BytesCode(Code):
    ALTERED = "the slot at offset {offset} has other bytes than were last written there"


@invariant(When.OP, on=(BytesCompared,))
def slots_keep_their_bytes(change: Transition) -> Evidence:
    """The bytes of a slot change only when a pass, a copy or a transfer writes them."""
    for event in change.events_of(BytesCompared):
        for unit, offset in event.altered:
            yield found(unit_ref(change.after.pool(event.pool), unit), BytesCode.ALTERED, offset=offset)
