"""Aborted requests that are still served."""

from swarden.invariants.contracts.aborted_requests import AbortedRequestsCode, aborted_requests_are_released
from swarden.invariants.kinds import Place
from swarden.invariants.violation import found, request_ref
from tests.invariants.builders import broken, healthy
from tests.invariants.cases.clients import ENDED, client_with

CASES = [
    healthy(aborted_requests_are_released, client_with(num_at_abort=4, after=ENDED), "released"),
    broken(
        aborted_requests_are_released,
        "still-served",
        client_with(num_at_abort=4),
        found(request_ref(1), AbortedRequestsCode.STILL_SERVED, place=Place.RUNNING),
    ),
]
