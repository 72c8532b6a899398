"""Requests that overtake others in the queue."""

from dataclasses import replace

from swarden.invariants.contracts.queue_order import QueueOrderCode, admission_follows_queue_order
from swarden.invariants.events import Admitted, Finished, LoadPlanned
from swarden.invariants.limits import ARRIVAL, PRIORITY
from swarden.invariants.transition import Transition
from swarden.invariants.violation import Found, Ref, found
from tests.invariants.builders import AFTER, LIMITS, broken, healthy, idle


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
    healthy(admission_follows_queue_order, queued(*[Admitted(one, 0, 5, (), ()) for one in (3, 4, 2)])),
    healthy(
        admission_follows_queue_order,
        queued(Finished(3, "timeout"), Admitted(4, 0, 5, (), ())),
        "first-request-has-finished",
    ),
    healthy(admission_follows_queue_order, queued(Admitted(1, 16, 22, (), ())), "next-chunk-of-a-request"),
    healthy(
        admission_follows_queue_order,
        queued(LoadPlanned(3, 4, 1, (), ()), Admitted(4, 0, 5, (), ()), LoadPlanned(2, 4, 2, (), ())),
        "earlier-requests-load",
    ),
    broken(
        admission_follows_queue_order,
        "overtaken-by-a-load",
        queued(LoadPlanned(2, 4, 1, (), ())),
        overtaken(2, priority=0),
    ),
    healthy(
        admission_follows_queue_order,
        queued(Admitted(4, 0, 5, (), ()), waits_by=(PRIORITY,)),
        "equal-ranks-in-any-order",
    ),
    broken(
        admission_follows_queue_order,
        "overtaken-by-lower-priority",
        queued(Admitted(2, 0, 5, (), ())),
        overtaken(2, priority=0),
    ),
    broken(
        admission_follows_queue_order,
        "overtaken-by-a-later-request",
        queued(Admitted(4, 0, 5, (), ())),
        overtaken(4, priority=1),
    ),
]
