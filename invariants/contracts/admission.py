"""Admission: a naive planner decides which requests start in a step, and what is reserved for them.

On a server: Too many requests start, and are retracted soon; or too few, and memory is idle while clients wait.
"""

from swarden.invariants.contracts.planning import Stretch, verdicts_on
from swarden.invariants.invariant import invariant
from swarden.invariants.transition import Transition, When
from swarden.invariants.violation import Code, Evidence, found, request_ref

PLANNED_BY = ("nodes", "receipts", "records", "requests", "counters", "launches")


class AdmissionCode(Code):
    OTHER_RESERVATION = (
        "admitted for [{got_start}, {got_end}) with {got_firm} reserved (demand {got_demand}), "
        "the naive planner has [{want_start}, {want_end}) with {want_firm} reserved (demand {want_demand})"
    )
    KEPT_WAITING = "waits, but [{want_start}, {want_end}) fits with {want_firm} reserved (demand {want_demand})"
    DOES_NOT_FIT = (
        "admitted for [{got_start}, {got_end}) with {got_firm} reserved (demand {got_demand}), which does not fit: "
        "the naive planner has {available} available"
    )


def demand_is_known(change: Transition) -> bool:
    """Can admission be predicted?"""
    return change.after.limits.estimates is not None and change.has_same_limits


@invariant(When.STEP, needs=PLANNED_BY, given=demand_is_known)
def reservations_match_planner(change: Transition) -> Evidence:
    """An admitted request gets the range and the reservation that a naive planner counts for it."""
    for verdict in change.once(verdicts_on):
        if verdict.found is not None and verdict.expected is not None and verdict.found != verdict.expected:
            values = _values("want", verdict.expected) | _values("got", verdict.found)
            yield found(request_ref(verdict.request_id), AdmissionCode.OTHER_RESERVATION, **values)


@invariant(When.STEP, needs=PLANNED_BY, given=demand_is_known)
def admission_matches_planner(change: Transition) -> Evidence:
    """A request is admitted if, and only if, it is next and fits by a naive planner."""
    for verdict in change.once(verdicts_on):
        subject = request_ref(verdict.request_id)
        if verdict.found is None and verdict.expected is not None:
            yield found(subject, AdmissionCode.KEPT_WAITING, **_values("want", verdict.expected))
        elif verdict.found is not None and verdict.expected is None:
            yield found(
                subject, AdmissionCode.DOES_NOT_FIT, **_values("got", verdict.found), available=verdict.available
            )


def _values(prefix: str, stretch: Stretch) -> dict[str, object]:
    """The values of a violation for a stretch: its range, and by pool its firm pages and its demand."""
    need = {f"{prefix}_firm": stretch.need.firm, f"{prefix}_demand": stretch.need.demand}
    return {f"{prefix}_start": stretch.start, f"{prefix}_end": stretch.end, **need}
