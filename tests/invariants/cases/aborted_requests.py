"""Aborted requests that are still served, and wrong reasons of the ends of requests."""

from swarden.invariants.contracts.aborted_requests import (
    AbortedRequestsCode,
    aborted_requests_are_released,
    aborts_are_reported_as_such,
)
from swarden.invariants.events import Finished, FinishReason
from swarden.invariants.kinds import Place
from swarden.invariants.violation import found, request_ref
from tests.invariants.builders import broken, healthy
from tests.invariants.cases.clients import ENDED, LAST, client_with


def ended(reason, **client):
    return client_with(Finished(1, reason), after=ENDED, **client)


CASES = [
    healthy(aborted_requests_are_released, client_with(num_at_abort=4, after=ENDED), "released"),
    broken(
        aborted_requests_are_released,
        "still-served",
        client_with(num_at_abort=4),
        found(request_ref(1), AbortedRequestsCode.STILL_SERVED, place=Place.RUNNING),
    ),
    healthy(aborts_are_reported_as_such, ended(FinishReason.ABORT, num_at_abort=4), "aborted"),
    healthy(aborts_are_reported_as_such, ended(FinishReason.TIMEOUT, num_at_abort=4), "timed-out"),
    healthy(aborts_are_reported_as_such, ended(FinishReason.STOP, num_at_abort=3, stop=[LAST]), "stopped"),
    broken(
        aborts_are_reported_as_such,
        "not-aborted",
        ended(FinishReason.ABORT),
        found(request_ref(1), AbortedRequestsCode.NOT_ABORTED),
    ),
    *(
        broken(
            aborts_are_reported_as_such,
            f"not-complete-{reason}",
            ended(reason, num_at_abort=3),
            found(request_ref(1), AbortedRequestsCode.NOT_COMPLETE, reason=reason),
        )
        for reason in (FinishReason.STOP, FinishReason.LENGTH)
    ),
]
