"""Requests that time out too early."""

from dataclasses import replace

from swarden.invariants.events import Finished, FinishReason
from swarden.invariants.laws.lifecycle.timeouts import TimeoutCode, timed_out_requests_are_old_enough
from swarden.invariants.violation import found, request_ref
from tests.invariants.builders import BEFORE, LIMITS, broken, healthy, idle

LIMIT_MS = 100
TIMED_OUT = Finished(2, FinishReason.TIMEOUT)


def aged(*events, ages, ms_per_step=0):
    """r1 runs and r2 waits, with these ages in milliseconds; requests with an event have ended after the step."""
    requests = [request._replace(age_ms=age) for request, age in zip(BEFORE.requests or (), ages, strict=True)]
    ended = {event.request_id for event in events}
    before = replace(
        BEFORE, requests=tuple(requests), limits=LIMITS._replace(request_timeout_ms=LIMIT_MS, ms_per_step=ms_per_step)
    )
    left = tuple(request for request in requests if request.id not in ended)
    return idle(*events, before=before, after=replace(before, requests=left))


CASES = [
    healthy(timed_out_requests_are_old_enough, aged(TIMED_OUT, ages=(None, None)), "ages-unknown"),
    broken(
        timed_out_requests_are_old_enough,
        "early",
        aged(TIMED_OUT, ages=(97, 98), ms_per_step=1),
        found(request_ref(2), TimeoutCode.EARLY, age_ms=99, timeout_ms=LIMIT_MS),
    ),
]
