"""Preemption: when requests are preempted, which ones, and that the preemptor is admitted at once.

On a server: An important request waits although others could give way; or running requests lose their work in vain.
"""

from itertools import product

from swarden.invariants.contracts.admission import PLANNED_BY, demand_is_known
from swarden.invariants.contracts.planning import rivalry
from swarden.invariants.events import Admitted, LoadPlanned, Preempted
from swarden.invariants.invariant import invariant
from swarden.invariants.kinds import Place
from swarden.invariants.transition import Transition, When
from swarden.invariants.violation import Code, Evidence, found, request_ref


class PreemptionCode(Code):
    NOT_PREEMPTED = "fits only in place of {lesser} of lower priority, and none of these is preempted"
    PREEMPTOR_NOT_WAITING = "preempted for {by}, which did not wait"
    PREEMPTOR_NOT_ADMITTED = "preempted for {by}, which was not admitted afterwards"
    LESS_IMPORTANT_SPARED = "preempted, but {spared} of lower priority runs on"


def preemption_is_predictable(change: Transition) -> bool:
    """Does the engine preempt requests, and can its admission be predicted?"""
    return change.before.limits.preemption_threshold is not None and demand_is_known(change)


@invariant(When.STEP, needs=PLANNED_BY, given=preemption_is_predictable)
def preemption_matches_planner(change: Transition) -> Evidence:
    """The first waiting request preempts running ones of lower priority if it fits only in place of some of them.

    The priority must be lower by more than preemption_threshold.  No request is preempted in place of one with a lower
    priority that would do.
    """
    rivals = rivalry(change.before, change.events, change.reference.tokens_of)
    if rivals is None:
        return
    preempted = {event.request_id for event in change.events_of(Preempted)}
    if not preempted:
        lesser = tuple(request_ref(request.id) for request in rivals.lesser)
        yield found(request_ref(rivals.first.id), PreemptionCode.NOT_PREEMPTED, lesser=lesser)
    victims = [request for request in rivals.lesser if request.id in preempted]
    for victim, other in product(victims, rivals.lesser):
        others = [other, *(request for request in victims if request is not victim)]
        if other.id not in preempted and other.priority < victim.priority and rivals.fits_without(others):
            subject = request_ref(victim.id)
            yield found(subject, PreemptionCode.LESS_IMPORTANT_SPARED, spared=request_ref(other.id))


@invariant(When.OP, needs=("requests",), on=(Preempted,))
def preemptor_is_admitted_at_once(change: Transition) -> Evidence:
    """The request for which another is preempted waits before the step, and is admitted later in the step."""
    admitted: set[int] = set()
    for event in reversed(change.events):
        if isinstance(event, (Admitted, LoadPlanned)):
            admitted.add(event.request_id)
        elif isinstance(event, Preempted):
            by, subject = change.before.request_by_id.get(event.by), request_ref(event.request_id)
            if by is None or by.place != Place.WAITING:
                yield found(subject, PreemptionCode.PREEMPTOR_NOT_WAITING, by=request_ref(event.by))
            elif by.id not in admitted:
                yield found(subject, PreemptionCode.PREEMPTOR_NOT_ADMITTED, by=request_ref(event.by))
