"""Timeouts take effect in the first step in which a request is too old.

On a server: A request that is too old keeps its pages and its place.
"""

from swarden.invariants.invariant import invariant
from swarden.invariants.laws.lifecycle.timeouts import has_timeout
from swarden.invariants.transition import Transition, When
from swarden.invariants.violation import Code, Evidence, found, request_ref


class OverdueRequestsCode(Code):
    LATE = "{place} after {age_ms} ms, the timeout is {timeout_ms} ms"


@invariant(When.STEP, needs=("requests",), given=has_timeout)
def old_requests_time_out(change: Transition) -> Evidence:
    """No request is left after a step in which its age had reached the timeout."""
    limit = change.after.limits.request_timeout_ms
    assert limit is not None, "timeout_ms is needed"
    for request in change.after.requests or ():
        if request.age_ms is not None and request.age_ms >= limit:
            values = {"place": request.place, "age_ms": request.age_ms, "timeout_ms": limit}
            yield found(request_ref(request.id), OverdueRequestsCode.LATE, **values)
