"""Failed passes that are retried too often, too rarely, or not counted."""

from swarden.invariants.contracts.retries import RetryCode, failed_passes_are_retried
from swarden.invariants.events import Completed, Failed, Finished, FinishReason
from swarden.invariants.transition import Transition
from swarden.invariants.violation import Ref, found
from tests.invariants.builders import BEFORE, broken, healthy, in_flight

GIVEN_UP, REQUEST = Finished(1, FinishReason.FORWARD_FAILED), Ref("request", 1)


def failing(*events, before=0, after=0) -> Transition:
    """Launch 7, with r1, fails; `before` and `after` are the counted failures of r1 (None: r1 has ended)."""
    running, waiting = BEFORE.requests or ()
    later = [] if after is None else [running._replace(place="waiting", num_failures=after)]
    return in_flight(
        Failed(7, "lost"),
        *events,
        Completed(7),
        before={"requests": (running._replace(num_failures=before), waiting)},
        requests=(*later, waiting),
    )


CASES = [
    healthy(failed_passes_are_retried, failing(GIVEN_UP, before=1, after=None), "finished-after-too-many-failures"),
    broken(
        failed_passes_are_retried,
        "too-often",
        failing(before=1, after=2),
        found(REQUEST, RetryCode.RETRIED_TOO_OFTEN, failures=2, most=1, place="waiting"),
    ),
    broken(
        failed_passes_are_retried,
        "not-counted",
        failing(after=0),
        found(REQUEST, RetryCode.MISCOUNTED, failures=1, counted=0),
    ),
    broken(
        failed_passes_are_retried,
        "finished-too-early",
        failing(GIVEN_UP, after=None),
        found(REQUEST, RetryCode.GIVEN_UP_EARLY, failures=1, most=1),
    ),
]
