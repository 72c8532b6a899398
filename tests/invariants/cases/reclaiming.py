"""Preempted requests whose pages wait for passes in flight."""

from swarden.invariants.contracts.reclaiming import ReclaimingCode, preempted_requests_free_units_at_once
from swarden.invariants.events import Freed, Preempted, Retracted
from swarden.invariants.violation import found, request_ref
from tests.invariants.builders import R1, broken, in_flight

RETRACTED, PREEMPTED = Retracted(1, 3, ()), Preempted(1, 3, 2)
ROW, LATER = Freed("rows", (1,), R1, "retracted", 0), Freed("swa", (5, 6), R1, "retracted", 8)

CASES = [
    *[
        broken(
            preempted_requests_free_units_at_once,
            type(event).__name__.lower(),
            in_flight(event, ROW, LATER),
            found(request_ref(1), ReclaimingCode.FREES_NOTHING_NOW, units=2, launch=8),
        )
        for event in (RETRACTED, PREEMPTED)
    ]
]
