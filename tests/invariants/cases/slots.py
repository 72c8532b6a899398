"""Slots whose bytes changed without a write."""

from swarden.invariants.events import BytesCompared
from swarden.invariants.laws.content.slots import BytesCode, slots_keep_their_bytes
from swarden.invariants.violation import found
from tests.invariants.builders import broken, during, healthy, page

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
]
