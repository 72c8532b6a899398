"""Running requests that a pass leaves out."""

from dataclasses import replace

from swarden.invariants.contracts.running_requests import RunningCode, running_requests_are_computed
from swarden.invariants.events import Completed, Launched, Retracted
from swarden.invariants.kinds import Place
from swarden.invariants.violation import Ref, found, request_ref
from tests.invariants.builders import AFTER, BEFORE, IN_FLIGHT_BEFORE, LIMITS, R2, broken, healthy, idle

MIXING = LIMITS._replace(mixes_batches=True, reuses_in_launch_order=True)
APART = MIXING._replace(mixes_batches=False)
BOTH_DECODE = replace(
    BEFORE,
    records=(*(BEFORE.records or ()), (BEFORE.records or ())[0]._replace(owner=R2)),
    requests=tuple([request._replace(place=Place.RUNNING) for request in BEFORE.requests or ()]),
)
OF_ANOTHER = Launched(9, ((2, 0, 5),))


def launching(*events, before=BEFORE, limits=MIXING):
    """r1 decodes, and r2 is prefilled."""
    change = idle(*events, before=replace(before, limits=limits))
    return replace(change, after=replace(AFTER, limits=limits, requests=before.requests))


CASES = [
    healthy(running_requests_are_computed, launching(Launched(9, ((2, 0, 8),))), "budget-spent"),
    healthy(
        running_requests_are_computed,
        launching(OF_ANOTHER, Completed(7), before=IN_FLIGHT_BEFORE),
        "in-the-pass-before",
    ),
    broken(
        running_requests_are_computed,
        "passed-over",
        launching(OF_ANOTHER),
        found(request_ref(1), RunningCode.PASSED_OVER, launch=Ref("launch", 9), count=5, most=8),
    ),
    *(
        healthy(running_requests_are_computed, launching(*events, before=BOTH_DECODE, limits=APART), name)
        for name, events in (
            ("prefilled-again", (OF_ANOTHER,)),
            ("prefilled-again-from-the-cache", (Retracted(2, 5, ()), Launched(9, ((2, 20, 21),)))),
        )
    ),
    broken(
        running_requests_are_computed,
        "not-decoded",
        launching(Launched(9, ((2, 20, 21),)), before=BOTH_DECODE, limits=APART),
        found(request_ref(1), RunningCode.NOT_DECODED, launch=Ref("launch", 9)),
    ),
]
