"""Aborts take effect at once, and are reported as such.

On a server: Aborted requests keep their pages, while others wait for them; or a client cannot tell whether its answer
is complete.
"""

from swarden.invariants.events import Finished, FinishReason
from swarden.invariants.invariant import invariant
from swarden.invariants.laws.content.outputs import tokens_are_known
from swarden.invariants.reference import Expectation
from swarden.invariants.transition import Transition, When
from swarden.invariants.view import RequestView
from swarden.invariants.violation import Code, Evidence, found, request_ref


class AbortedRequestsCode(Code):
    STILL_SERVED = "aborted, but still {place}"
    NOT_ABORTED = "ended as aborted, but its client has not aborted it"
    NOT_COMPLETE = "aborted by its client, and ended with the reason {reason}, but its output is not complete"


@invariant(When.OP, needs=("requests",), given=tokens_are_known)
def aborted_requests_are_released(change: Transition) -> Evidence:
    """An aborted request is no longer in the engine: it neither waits nor runs."""
    for request in change.after.requests or ():
        expected = change.reference.expectations.get(request.id)
        if expected is not None and expected.is_aborted:
            yield found(request_ref(request.id), AbortedRequestsCode.STILL_SERVED, place=request.place)


@invariant(When.OP, needs=("requests",), on=(Finished,), given=tokens_are_known)
def aborts_are_reported_as_such(change: Transition) -> Evidence:
    """A request ends as aborted only if its client has aborted it; then it ends by itself only with a complete output.

    Of other requests `outputs_end_as_asked` checks the reason.
    """
    for event in change.events_of(Finished):
        expected = change.reference.expectations.get(event.request_id)
        request = change.before.request_by_id.get(event.request_id)
        if expected is not None and event.reason == FinishReason.ABORT and not expected.is_aborted:
            yield found(request_ref(event.request_id), AbortedRequestsCode.NOT_ABORTED)
        elif expected is not None and expected.is_aborted and not _is_complete(event, expected, request):
            yield found(request_ref(event.request_id), AbortedRequestsCode.NOT_COMPLETE, reason=event.reason)


def _is_complete(event: Finished, expected: Expectation, request: RequestView | None) -> bool:
    """Has an output the tokens that its reason stands for?"""
    outputs = expected.tokens[expected.prompt_len :]
    if event.reason == FinishReason.STOP:
        return not expected.stop.isdisjoint(outputs[-1:])
    return event.reason != FinishReason.LENGTH or request is None or len(outputs) >= request.max_new_tokens
