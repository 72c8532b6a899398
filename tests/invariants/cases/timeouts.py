"""Requests that get too old, and that are ended too young."""

from dataclasses import replace

from invariants.events import Finished
from invariants.timeouts import nobody_gets_older_than_the_limit
from tests.invariants.builders import BEFORE, LIMITS, broken, healthy, idle

LIMIT_MS = 100


def aged(*events, ages, ms_per_step=0):
    """r1 runs and r2 waits, so many milliseconds old; only who is left of them after the step."""
    requests = [request._replace(age_ms=age) for request, age in zip(BEFORE.requests or (), ages, strict=True)]
    ended = {event.request_id for event in events}
    before = replace(
        BEFORE, requests=tuple(requests), limits=LIMITS._replace(timeout_ms=LIMIT_MS, ms_per_step=ms_per_step)
    )
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
    healthy(
        nobody_gets_older_than_the_limit,
        aged(Finished(2, "timeout"), ages=(98, 99), ms_per_step=1),
        "the-clock-goes-on-as-the-step-begins",
    ),
    broken(
        nobody_gets_older_than_the_limit,
        "a-moment-too-early-by-the-clock-of-the-step",
        aged(Finished(2, "timeout"), ages=(97, 98), ms_per_step=1),
        ("request r2", "ended by its age after 99 ms, the limit is 100"),
    ),
]
