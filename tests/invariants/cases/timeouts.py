"""Requests that get too old, and that are ended too young."""

from dataclasses import replace

from invariants.events import Finished
from invariants.timeouts import nobody_gets_older_than_the_limit
from tests.invariants.builders import BEFORE, LIMITS, broken, healthy, idle

LIMIT_MS = 100


def aged(*events, ages):
    """r1 runs and r2 waits, so many milliseconds old; only who is left of them after the step."""
    requests = [request._replace(age_ms=age) for request, age in zip(BEFORE.requests or (), ages, strict=True)]
    ended = {event.request_id for event in events}
    before = replace(BEFORE, requests=tuple(requests), limits=LIMITS._replace(timeout_ms=LIMIT_MS))
    left = tuple(request for request in requests if request.id not in ended)
    return idle(*events, before=before, after=replace(before, requests=left))


CASES = [
    healthy(nobody_gets_older_than_the_limit, aged(Finished(2, "timeout"), ages=(99, 100))),
    healthy(nobody_gets_older_than_the_limit, aged(Finished(2, "abort"), ages=(99, 7)), "gone-for-another-reason"),
    healthy(nobody_gets_older_than_the_limit, aged(ages=(None, None)), "ages-are-not-told"),
    broken(
        nobody_gets_older_than_the_limit,
        "a-moment-too-late",
        aged(ages=(100, 99)),
        ("request r1", "is running after 100 ms, the limit is 100"),
    ),
    broken(
        nobody_gets_older_than_the_limit,
        "a-moment-too-early",
        aged(Finished(2, "timeout"), ages=(1, 99)),
        ("request r2", "ended by its age after 99 ms, the limit is 100"),
    ),
]
