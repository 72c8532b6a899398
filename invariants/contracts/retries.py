"""A request is retried after a failed pass, but only a limited number of times.

On a server: A failed pass ends requests that a second try would have answered, or is repeated for ever.
"""

from swarden.invariants.events import Failed, Finished, FinishReason
from swarden.invariants.invariant import invariant
from swarden.invariants.transition import Transition, When
from swarden.invariants.violation import Code, Evidence, found, request_ref


class RetryCode(Code):
    MISCOUNTED = "{failures} passes with it have failed, {counted} are counted"
    RETRIED_TOO_OFTEN = "{failures} passes with it have failed, at most {most} may, but it is {place}"
    GIVEN_UP_EARLY = "finished as failed, but only {failures} passes with it have failed, and {most} may"


@invariant(When.OP, needs=("requests", "launches"), on=(Failed,))
def failed_passes_are_retried(change: Transition) -> Evidence:
    """A request of a failed pass is retried up to max_forward_retries times, and then finished with an error."""
    most = change.after.limits.max_forward_retries
    ended = {event.request_id: event.reason for event in change.events_of(Finished)}
    for landing in change.landings:
        if landing.failed:
            earlier = change.before.request_by_id.get(landing.request_id)
            failures = 1 + (earlier.num_failures if earlier is not None else 0)
            later, subject = change.after.request_by_id.get(landing.request_id), request_ref(landing.request_id)
            if later is not None and later.num_failures != failures:
                yield found(subject, RetryCode.MISCOUNTED, failures=failures, counted=later.num_failures)
            elif later is not None and most is not None and failures > most:
                yield found(subject, RetryCode.RETRIED_TOO_OFTEN, failures=failures, most=most, place=later.place)
            elif ended.get(landing.request_id) == FinishReason.FORWARD_FAILED and (most is None or failures <= most):
                yield found(subject, RetryCode.GIVEN_UP_EARLY, failures=failures, most=most)
