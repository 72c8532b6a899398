"""A preemption frees units that can be used at once.

On a server: Running requests are preempted one after the other, and nothing starts in their place: the throughput
collapses.
"""

from swarden.invariants.events import REQUEST_KIND, Freed, Loaded, Owner, Paused, Preempted, Retracted
from swarden.invariants.invariant import invariant
from swarden.invariants.laws.lifecycle.flights import freed_units_wait_for_passes
from swarden.invariants.transition import Transition, When
from swarden.invariants.violation import Code, Evidence, found, request_ref


class ReclaimingCode(Code):
    FREES_NOTHING_NOW = "lost its place, but its {units} units are freed only when launch {launch} has completed"


@invariant(When.STEP, needs=("Freed",), on=(Retracted, Preempted), given=freed_units_wait_for_passes)
def preempted_requests_free_units_at_once(change: Transition) -> Evidence:
    """A request that is retracted or preempted frees units that can be taken at once.

    If all of them wait for passes in flight, nothing can be admitted in their place, and the next request is preempted
    in vain, too (vllm issue 49674).  Not checked: a pause, a request that frees no unit of its own, and a request whose
    load has ended in the step.  Such a load may have failed, so that the request has to begin again.
    """
    pools = {component.pool for component in change.after.components}
    lost = [] if change.events_of(Paused) else change.in_order(Retracted, Preempted)
    loaded = {event.request_id for event in change.events_of(Loaded)}
    for request_id in dict.fromkeys(event.request_id for event in lost):  # type: ignore[attr-defined]  # both events have a request_id
        if request_id in loaded:
            continue
        owner = Owner(REQUEST_KIND, request_id)
        freed = [event for event in change.events_of(Freed) if event.owner == owner and event.pool in pools]
        if freed and all(event.after for event in freed):
            values = {"units": sum(len(event.units) for event in freed), "launch": freed[-1].after}
            yield found(request_ref(request_id), ReclaimingCode.FREES_NOTHING_NOW, **values)
