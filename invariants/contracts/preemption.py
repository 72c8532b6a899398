"""Preemption: if the preemptor then fits; of the request of lowest priority; and the preemptor is admitted at once."""

from invariants.contracts.admission import PLANNED_BY, demand_is_known
from invariants.contracts.planning import rivalry
from invariants.events import Admitted, LoadPlanned, Preempted
from invariants.invariant import invariant
from invariants.kinds import Place
from invariants.transition import Transition, When
from invariants.view import RecordView, RequestView
from invariants.violation import Code, Evidence, found, request_ref


class PreemptionCode(Code):
    NOT_PREEMPTED = "not_preempted"
    PREEMPTOR_NOT_WAITING = "preemptor_not_waiting"
    PREEMPTOR_NOT_ADMITTED = "preemptor_not_admitted"
    LESS_IMPORTANT_SPARED = "less_important_spared"


def preemption_is_predictable(change: Transition) -> bool:
    """Does the engine preempt requests, and can its admission be predicted?"""
    return change.before.limits.preemption_threshold is not None and demand_is_known(change)


@invariant(When.STEP, needs=PLANNED_BY, given=preemption_is_predictable)
def preemption_matches_planner(change: Transition) -> Evidence:
    """The first waiting request preempts running ones of lower priority if it fits only in place of some of them.

    The priority must be lower by more than preemption_threshold.
    """
    rivals = rivalry(change.before, change.events, change.reference.tokens_of)
    if rivals is not None and not change.events_of(Preempted):
        lesser = tuple(map(request_ref, rivals.lesser))
        yield found(request_ref(rivals.first), PreemptionCode.NOT_PREEMPTED, lesser=lesser)


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


@invariant(When.OP, needs=("requests", "records"), on=(Preempted,))
def preemption_takes_lowest_priority(change: Transition) -> Evidence:
    """No request is preempted while one of lower priority runs on that would have freed more pages of every pool.

    Requests with fewer output tokens left than the preempted one are not compared.
    """
    for event in change.events_of(Preempted):
        victim = change.before.request_by_id.get(event.request_id)
        if victim is not None:
            spared = [one.id for one in change.before.requests or () if _was_spared(change, one, victim)]
            if spared:
                subject = request_ref(event.request_id)
                yield found(subject, PreemptionCode.LESS_IMPORTANT_SPARED, spared=request_ref(spared[0]))


def _was_spared(change: Transition, request: RequestView, victim: RequestView) -> bool:
    """Does a request of lower priority run on that would have freed more pages of every pool than the victim?"""
    if request.place != Place.RUNNING or request.priority >= victim.priority or request.id in change.released:
        return False
    given = change.before.record_by_request.get(victim.id)
    kept = [snapshot.record_by_request.get(request.id) for snapshot in (change.before, change.after)]
    left = [one.max_new_tokens - one.num_outputs for one in (request, victim)]
    if given is None or left[0] < left[1]:
        return False
    return all(
        record is not None
        and _num_units(record, index, record.protected_len // change.before.limits.page_size)
        > _num_units(given, index, 0)
        for record in kept
        for index in range(len(given.units))
    )


def _num_units(record: RecordView, component: int, first: int) -> int:
    """Units that a record names in a component, from page index `first` on."""
    return sum(unit != 0 for unit in record.units[component][first:])
