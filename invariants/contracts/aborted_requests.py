"""Aborts take effect at once.

On a server: Aborted requests keep their pages, while others wait for them.
"""

from swarden.invariants.invariant import invariant
from swarden.invariants.laws.content.outputs import tokens_are_known
from swarden.invariants.transition import Transition, When
from swarden.invariants.violation import Code, Evidence, found, request_ref


class AbortedRequestsCode(Code):
    STILL_SERVED = "aborted, but still {place}"


@invariant(When.OP, needs=("requests",), given=tokens_are_known)
def aborted_requests_are_released(change: Transition) -> Evidence:
    """An aborted request is no longer in the engine: it neither waits nor runs."""
    for request in change.after.requests or ():
        expected = change.reference.expectations.get(request.id)
        if expected is not None and expected.is_aborted:
            yield found(request_ref(request.id), AbortedRequestsCode.STILL_SERVED, place=request.place)
