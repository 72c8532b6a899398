"""How old a request gets."""

from invariants.events import Finished
from invariants.invariant import invariant
from invariants.transition import Transition, When
from invariants.violation import Evidence
from invariants.wording import request_name

TIMED_OUT = "timeout"


def there_is_a_limit(change: Transition) -> bool:
    return change.after.limits.timeout_ms is not None


@invariant(When.STEP, needs=("requests",), given=there_is_a_limit)
def nobody_gets_older_than_the_limit(change: Transition) -> Evidence:
    """A request ends for its age when a step finds it as old as the limit or older, and not before."""
    limit, passed_ms = change.after.limits.timeout_ms, change.after.limits.ms_per_step
    assert limit is not None, "there is a limit"
    for request in change.after.requests or ():
        if request.age_ms is not None and request.age_ms >= limit:
            yield request_name(request.id), f"is {request.place} after {request.age_ms} ms, the limit is {limit}"
    for event in change.events_of(Finished):
        known = change.before.request_by_id.get(event.request_id)
        age_ms = None if known is None or known.age_ms is None else known.age_ms + passed_ms
        if event.reason == TIMED_OUT and age_ms is not None and age_ms < limit:
            yield request_name(event.request_id), f"ended by its age after {age_ms} ms, the limit is {limit}"
