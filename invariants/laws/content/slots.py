"""The bytes and the KV of slots: they stay as they were written.

On a server: The KV of a page was overwritten or is that of other tokens: a wrong answer, silently, of each request
that reads the page.
"""

from swarden.invariants.events import BytesCompared, KVCompared
from swarden.invariants.invariant import invariant
from swarden.invariants.transition import Transition, When
from swarden.invariants.violation import Code, Evidence, found, request_ref, unit_ref


class BytesCode(Code):
    ALTERED = "the slot at offset {offset} has other bytes than were last written there"


@invariant(When.OP, on=(BytesCompared,))
def slots_keep_their_bytes(change: Transition) -> Evidence:
    """The bytes of a slot change only when a pass, a copy or a transfer writes them."""
    for event in change.events_of(BytesCompared):
        for unit, offset in event.altered:
            yield found(unit_ref(change.after.pool(event.pool), unit), BytesCode.ALTERED, offset=offset)


class KVCode(Code):
    DIFFERS = (
        "slot {slot} of {place}, read for position {position}: the KV of layer {layer} is off by {difference} from "
        "that first computed for the same tokens, tolerance {tolerance}"
    )
    NEVER_COMPUTED = "slot {slot} of {place} is read for position {position}: no KV was computed for these tokens"


@invariant(When.OP, on=(KVCompared,))
def kv_is_that_of_its_tokens(change: Transition) -> Evidence:
    """The KV in memory at each position that a pass reads is that which was first computed for the same tokens.

    Discarded results are not checked: they may depend on slots that a failed pass did not write.
    """
    for event in change.events_of(KVCompared):
        for wrong in event.wrong:
            if (event.launch, wrong.request_id) not in change.discarded:
                subject, place = request_ref(wrong.request_id), unit_ref(change.after.pool(event.pool), wrong.unit)
                at = {"slot": wrong.slot, "place": place, "position": wrong.position}
                if wrong.difference is None:
                    yield found(subject, KVCode.NEVER_COMPUTED, **at)
                else:
                    values = {"layer": wrong.layer, "difference": wrong.difference, "tolerance": event.tolerance}
                    yield found(subject, KVCode.DIFFERS, **at, **values)
