"""Admission: a naive planner decides which requests start in a step, and what is reserved for them.

On a server: Too many requests start, and are retracted soon; or too few, and memory is idle while clients wait.
"""

from swarden.invariants.contracts.planning import Stretch, verdicts_on
from swarden.invariants.events import Failed, Launched, LoadPlanned, Parked, Preempted, RanOut, Retracted
from swarden.invariants.invariant import invariant
from swarden.invariants.kinds import Place
from swarden.invariants.transition import Transition, When
from swarden.invariants.view import RequestView, Snapshot
from swarden.invariants.violation import Code, Evidence, found, request_ref

PLANNED_BY = ("nodes", "receipts", "records", "requests", "counters", "launches")
SHORTAGES = (Parked, RanOut, Retracted, Preempted, Failed)  # after one of these, free pages may be too few
SPARE_PAGES = 2  # of each pool: a stretch may start and end inside a page


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
    PLACE_LEFT_EMPTY = "waits, but it fits, and only {taken} of at most {places} requests are admitted"


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


@invariant(When.OP, needs=("requests", "records"), on=(Launched,))
def waiting_requests_take_free_places(change: Transition) -> Evidence:
    """No request waits while a further one may run and the pools have the pages of all requests at their longest.

    A further request may run if a row is free and fewer than max_running_requests hold KV.  Checked if each pass of the
    step computes fewer than chunk_len tokens, no request is between chunks, no pass failed, and no request was parked,
    retracted, preempted or out of pages.
    """
    if not all(pool.free for pool in change.before.pools if pool.unit == "row") or not has_pages_for_all(change.before):
        return
    waiting = [request for request in change.before.requests or () if request.place == Place.WAITING]
    still = [request for request in waiting if _waits_still(change, request)]
    if still and _has_tokens_to_spare(change) and _has_a_free_place(change):
        running = [request for request in change.before.requests or () if request.place != Place.WAITING]
        taken, places = len(running) + len(waiting) - len(still), change.after.limits.max_running_requests
        yield found(request_ref(still[0].id), AdmissionCode.PLACE_LEFT_EMPTY, taken=taken, places=places)


def has_pages_for_all(before: Snapshot) -> bool:
    """Has each pool as many free pages as all requests still need to reach their maximum length?"""
    page_size, num_pages = before.limits.page_size, 0
    most = max([len(before.pool(component.pool).free) for component in before.components], default=0)
    for request in before.requests or ():
        if num_pages > most:
            return False
        longest = request.prompt_len + request.max_new_tokens + before.limits.lookahead_len
        record = before.record_by_request.get(request.id)
        held = record.allocated_len if record is not None else 0
        num_pages += max(0, longest - held) // page_size - (-before.limits.lookahead_len // page_size) + SPARE_PAGES
    shares: dict[str, int] = {}
    for component in before.components:
        shares[component.pool] = shares.get(component.pool, 0) + num_pages
    return all(len(before.pool(pool).free) >= count for pool, count in shares.items())


def _values(prefix: str, stretch: Stretch) -> dict[str, object]:
    """The values of a violation for a stretch: its range, and by pool its firm pages and its demand."""
    need = {f"{prefix}_firm": stretch.need.firm, f"{prefix}_demand": stretch.need.demand}
    return {f"{prefix}_start": stretch.start, f"{prefix}_end": stretch.end, **need}


def _waits_still(change: Transition, request: RequestView) -> bool:
    later = change.after.request_by_id.get(request.id)
    return later is not None and later.place == Place.WAITING and request.id not in change.admitted


def _has_tokens_to_spare(change: Transition) -> bool:
    """Do the passes of the step stay below chunk_len, with no request between chunks and no shortage of memory?"""
    if any(change.events_of(kind) for kind in SHORTAGES) or _has_chunk(change.after):
        return False
    chunk_len = change.after.limits.chunk_len
    computed = [sum(end - start for _, start, end in event.entries) for event in change.events_of(Launched)]
    return chunk_len is None or all(count < chunk_len for count in computed)


def _has_chunk(snapshot: Snapshot) -> bool:
    return any(request.place == Place.CHUNKED for request in snapshot.requests or ())


def _has_a_free_place(change: Transition) -> bool:
    """Do the requests that started in the step leave a row, and a place among max_running_requests, free?"""
    before = change.before
    held = before.record_by_request
    started = change.admitted | {event.request_id for event in change.events_of(LoadPlanned)}
    num_new = sum(request.id in started and request.id not in held for request in before.requests or ())
    rows = [len(pool.free) for pool in before.pools if pool.unit == "row"]
    return all(num_new < count for count in [*rows, before.limits.max_running_requests - len(held)])
