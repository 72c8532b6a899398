"""Requests are admitted in the order of the waiting queue.

On a server: A request is overtaken by later ones, and waits for ever while there are enough of them.
"""

from collections.abc import Sequence

from swarden.invariants.events import Admitted, Finished, LoadPlanned
from swarden.invariants.invariant import invariant
from swarden.invariants.kinds import Place
from swarden.invariants.limits import ARRIVAL, PRIORITY
from swarden.invariants.transition import Transition, When
from swarden.invariants.view import RequestView
from swarden.invariants.violation import Code, Evidence, found, request_ref


class QueueOrderCode(Code):
    OVERTAKEN = "admitted with priority {priority}, but {ahead} of priority {ahead_priority} is before it in the queue"


def order_is_known(change: Transition) -> bool:
    """Do the limits name the order of the queue (`waits_by`)?"""
    return bool(change.after.limits.waits_by)


@invariant(When.OP, needs=("requests",), on=(Admitted, LoadPlanned), given=order_is_known)
def admission_follows_queue_order(change: Transition) -> Evidence:
    """Only the first request of the queue is admitted: a request that does not fit blocks the others.

    A request that was retracted or preempted in this step counts from the next step on.
    """
    waits_by = change.after.limits.waits_by
    waiting = {request.id: request for request in change.before.requests or () if request.place == Place.WAITING}
    for event in change.events:
        if isinstance(event, (Admitted, LoadPlanned, Finished)):
            head = waiting.pop(event.request_id, None)
            if head is not None and not isinstance(event, Finished):
                ahead = min(waiting.values(), key=lambda other: _rank(other, waits_by), default=head)
                if _rank(ahead, waits_by) < _rank(head, waits_by):
                    values = {"priority": head.priority, "ahead_priority": ahead.priority}
                    yield found(request_ref(head.id), QueueOrderCode.OVERTAKEN, ahead=request_ref(ahead.id), **values)


def _rank(request: RequestView, waits_by: Sequence[str]) -> tuple[int, int]:
    """The rank of a waiting request: the lowest is next, as far as the order of the queue is known."""
    return (-request.priority if PRIORITY in waits_by else 0, request.id if ARRIVAL in waits_by else 0)
