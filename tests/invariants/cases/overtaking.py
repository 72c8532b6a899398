"""Requests that are passed over by later ones."""

from dataclasses import replace

from swarden.invariants.contracts.overtaking import MOST_PASSES, OvertakingCode, waiting_requests_are_not_passed_over
from swarden.invariants.events import Launched
from swarden.invariants.limits import ARRIVAL
from swarden.invariants.reference import Past, Reference
from swarden.invariants.view import RequestView
from swarden.invariants.violation import Ref, found
from tests.invariants.builders import AFTER, BEFORE, LIMITS, broken, healthy, idle

FIRST, SECOND, THIRD = (RequestView(number, "waiting", 0, 8, 0, 9) for number in (2, 3, 4))
BEGINS = {number: Launched(7, ((number, 0, 8),)) for number in (2, 3, 4)}


def passed_over(*events, times=MOST_PASSES, queue=(2, 3, 4), requests=(FIRST, SECOND, THIRD)):
    """A step before which request 2 was passed over so many times."""
    before, after = (
        replace(state, requests=requests, limits=LIMITS._replace(waits_by=(ARRIVAL,))) for state in (BEFORE, AFTER)
    )
    past = Past(waiting={number: times if number == 2 else 0 for number in queue})
    return replace(idle(*events, before=before, after=after), reference=Reference(past=past))


FOUND = found(Ref("request", 2), OvertakingCode.PASSED_OVER, passes=MOST_PASSES + 1, latest=Ref("request", 3))
CASES = [
    healthy(waiting_requests_are_not_passed_over, passed_over(BEGINS[3], times=MOST_PASSES - 1), "a-few-times"),
    healthy(waiting_requests_are_not_passed_over, passed_over(BEGINS[2]), "begins"),
    healthy(waiting_requests_are_not_passed_over, passed_over(BEGINS[3], queue=(3, 2, 4)), "queued-again"),
    healthy(
        waiting_requests_are_not_passed_over,
        passed_over(BEGINS[3], requests=(FIRST, SECOND._replace(priority=1), THIRD)),
        "higher-priority",
    ),
    broken(waiting_requests_are_not_passed_over, "by-a-later-one", passed_over(BEGINS[3]), FOUND),
]
