"""Slots whose bytes changed without a write, or whose KV is that of other tokens."""

from swarden.invariants.events import BytesCompared, Completed, Discarded, KVCompared, WrongKV
from swarden.invariants.laws.content.slots import BytesCode, KVCode, kv_is_that_of_its_tokens, slots_keep_their_bytes
from swarden.invariants.violation import found, request_ref
from tests.invariants.builders import broken, during, healthy, page

WRONG = KVCompared(1, "full", 0.001, (WrongKV(2, 9, "layers.1", unit=6, slot=1, difference=0.5),))

CASES = [
    healthy(slots_keep_their_bytes, during(BytesCompared("full", ()))),
    broken(
        slots_keep_their_bytes,
        "altered",
        during(BytesCompared("full", ((6, 0), (7, 3))), BytesCompared("swa", ((4, 1),))),
        found(page("full", 6), BytesCode.ALTERED, offset=0),
        found(page("full", 7), BytesCode.ALTERED, offset=3),
        found(page("swa", 4), BytesCode.ALTERED, offset=1),
    ),
    healthy(kv_is_that_of_its_tokens, during(WRONG, Completed(1), Discarded(1, 2)), "of-a-discarded-result"),
    broken(
        kv_is_that_of_its_tokens,
        "of-other-tokens",
        during(WRONG),
        found(
            request_ref(2),
            KVCode.DIFFERS,
            slot=1,
            place=page("full", 6),
            position=9,
            layer="layers.1",
            difference=0.5,
            tolerance=0.001,
        ),
    ),
    broken(
        kv_is_that_of_its_tokens,
        "of-no-tokens",
        during(KVCompared(1, "full", 0.001, (WrongKV(2, 9, "layers.1", unit=6, slot=1, difference=None),))),
        found(request_ref(2), KVCode.NEVER_COMPUTED, slot=1, place=page("full", 6), position=9),
    ),
]
