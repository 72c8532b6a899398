"""Request timeouts.

On a server: A client gets a time-out before its time.
"""

from swarden.invariants.events import Finished, FinishReason
from swarden.invariants.invariant import invariant
from swarden.invariants.transition import Transition, When
from swarden.invariants.violation import Code, Evidence, found, request_ref


class TimeoutCode(Code):
    EARLY = "timed out after {age_ms} ms, the timeout is {timeout_ms} ms"


def has_timeout(change: Transition) -> bool:
    """Do the limits name a timeout of requests (`request_timeout_ms`)?"""
    return change.after.limits.request_timeout_ms is not None


@invariant(When.STEP, needs=("requests",), on=(Finished,), given=has_timeout)
def timed_out_requests_are_old_enough(change: Transition) -> Evidence:
    """A request times out only when its age has reached the timeout."""
    limit = change.after.limits.request_timeout_ms
    assert limit is not None, "timeout_ms is needed"
    for event in change.events_of(Finished):
        request = change.before.request_by_id.get(event.request_id)
        if event.reason == FinishReason.TIMEOUT and request is not None and request.age_ms is not None:
            age_ms = request.age_ms + change.after.limits.ms_per_step
            if age_ms < limit:
                yield found(request_ref(event.request_id), TimeoutCode.EARLY, age_ms=age_ms, timeout_ms=limit)
