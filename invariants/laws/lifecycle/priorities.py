"""Preemption by priority.

On a server: A running request gives way to one that is not more important: its work is done twice.
"""

from swarden.invariants.events import Preempted
from swarden.invariants.invariant import invariant
from swarden.invariants.kinds import Place
from swarden.invariants.transition import Transition, When
from swarden.invariants.violation import Code, Evidence, found, request_ref


class PriorityCode(Code):
    PREEMPTION_IS_OFF = "preempted for {by}, but preemption is off"
    VICTIM_NOT_RUNNING = "preempted for {by}, but it did not run"
    PRIORITY_TOO_LOW = (
        "has priority {priority}, but is preempted for {by} of priority {by_priority}, threshold {threshold}"
    )


@invariant(When.OP, needs=("requests",), on=(Preempted,))
def preemption_serves_higher_priority(change: Transition) -> Evidence:
    """A running request is preempted only for one whose priority is higher by more than the threshold.

    If the event does not name the other request, their priorities are not compared.
    """
    threshold = change.after.limits.preemption_threshold
    for event in change.events_of(Preempted):
        subject, by = request_ref(event.request_id), change.before.request_by_id.get(event.by)
        victim = change.before.request_by_id.get(event.request_id)
        if threshold is None:
            yield found(subject, PriorityCode.PREEMPTION_IS_OFF, by=request_ref(event.by))
        elif victim is None or victim.place == Place.WAITING:
            yield found(subject, PriorityCode.VICTIM_NOT_RUNNING, by=request_ref(event.by))
        elif by is not None and by.priority <= victim.priority + threshold:
            values = {"priority": victim.priority, "by_priority": by.priority, "threshold": threshold}
            yield found(subject, PriorityCode.PRIORITY_TOO_LOW, by=request_ref(event.by), **values)
