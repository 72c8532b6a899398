"""Requests that overtake others in the queue."""

from dataclasses import replace

from swarden.invariants.contracts.queue_order import QueueOrderCode, admission_follows_queue_order
from swarden.invariants.events import LoadPlanned
from swarden.invariants.limits import ARRIVAL, PRIORITY
from swarden.invariants.transition import Transition
from swarden.invariants.violation import Found, Ref, found
from tests.invariants.builders import AFTER, LIMITS, broken, idle


def queued(*events, waits_by=(PRIORITY, ARRIVAL)) -> Transition:
    """r2 of priority 0 waits, and r3 and r4 of priority 1."""
    running, waiting = AFTER.requests or ()
    queue = [waiting._replace(id=number, priority=priority) for number, priority in ((2, 0), (3, 1), (4, 1))]
    state = replace(AFTER, requests=(running, *queue), limits=LIMITS._replace(waits_by=waits_by))
    return idle(*events, before=state)


def overtaken(admitted: int, *, priority: int) -> Found:
    """The violation that a request is admitted before r3."""
    values = {"ahead": Ref("request", 3), "priority": priority, "ahead_priority": 1}
    return found(Ref("request", admitted), QueueOrderCode.OVERTAKEN, **values)


CASES = [
    broken(
        admission_follows_queue_order,
        "overtaken-by-a-load",
        queued(LoadPlanned(2, 4, 1, (), ())),
        overtaken(2, priority=0),
    )
]
