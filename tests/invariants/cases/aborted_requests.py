"""Aborted requests that are still served, and wrong reasons of the ends of requests."""

from swarden.invariants.contracts.aborted_requests import (
    AbortedRequestsCode,
    aborted_requests_are_released,
    aborts_are_reported_as_such,
)
from swarden.invariants.events import Finished, FinishReason
from swarden.invariants.kinds import Place
from swarden.invariants.violation import found, request_ref
from tests.invariants.builders import broken
from tests.invariants.cases.clients import ENDED, client_with


def ended(reason, **client):
    return client_with(Finished(1, reason), after=ENDED, **client)


CASES = [
    broken(
        aborted_requests_are_released,
        "still-served",
        client_with(num_at_abort=4),
        found(request_ref(1), AbortedRequestsCode.STILL_SERVED, place=Place.RUNNING),
    ),
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
