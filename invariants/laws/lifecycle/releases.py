"""Requests that finish, or stop running to wait again: they release everything, and none is lost.

On a server: Pages and rows leak with each such request, until no request fits; or a request is lost, and its client
waits for ever.
"""

import swarden.invariants.events as seen
from swarden.invariants.invariant import invariant
from swarden.invariants.kinds import Place
from swarden.invariants.transition import Transition, When
from swarden.invariants.view import Snapshot
from swarden.invariants.violation import Code, Evidence, found, request_ref

WITHOUT_RECORD = frozenset({Place.WAITING, Place.LINKED})
ADMISSIONS = (seen.Admitted.__name__, seen.LoadPlanned.__name__)


class ReleaseCode(Code):
    KEEPS_RECORD = "still has a record in row {row} after {after}"
    KEEPS_UNITS = "still owns {pool} {units} after {after}"
    STILL_QUEUED = "finished ({reason}), but it is {place}"
    VANISHED = "was in launch {launch}, which failed; now it is in no queue and not finished"


@invariant(When.OP, needs=("requests",), on=(seen.Retracted, seen.Preempted, seen.RanOut, seen.GaveWay, seen.Failed))
def retracted_requests_hold_nothing(change: Transition) -> Evidence:
    """A retracted or preempted request, or one of a failed pass, has no record, row or page until it is admitted again.

    Units that a pass in flight still reads or writes for it are fenced, and not the request's.  If the engine does not
    report admissions, only requests that wait (Place WAITING or LINKED) are checked.
    """
    released: dict[int, str] = {}
    for event in change.in_order(
        seen.Retracted, seen.Preempted, seen.RanOut, seen.GaveWay, seen.Failed, seen.Admitted, seen.LoadPlanned
    ):
        if isinstance(event, (seen.Retracted, seen.Preempted, seen.RanOut, seen.GaveWay)):
            released[event.request_id] = type(event).__name__
        elif isinstance(event, seen.Failed):
            failed = [one.request_id for one in change.landings if one.failed and one.launch == event.launch]
            released |= dict.fromkeys(failed, type(event).__name__)
        elif isinstance(event, (seen.Admitted, seen.LoadPlanned)):
            released.pop(event.request_id, None)
    are_reported = change.after.unreported.isdisjoint(ADMISSIONS)
    for request_id, cause in released.items():
        request = change.after.request_by_id.get(request_id)
        if are_reported or (request is not None and request.place in WITHOUT_RECORD):
            yield from _remains(change.after, request_id, cause)


@invariant(When.OP, on=(seen.Finished,))
def finished_requests_hold_nothing(change: Transition) -> Evidence:
    """A finished request is in no queue and has no record, no row and no page."""
    for event in change.events_of(seen.Finished):
        request = change.after.request_by_id.get(event.request_id)
        if request is not None:
            values = {"reason": event.reason, "place": request.place}
            yield found(request_ref(event.request_id), ReleaseCode.STILL_QUEUED, **values)
        yield from _remains(change.after, event.request_id, type(event).__name__)


@invariant(When.OP, needs=("requests", "launches", "Finished"), on=(seen.Failed,))
def requests_survive_failed_passes(change: Transition) -> Evidence:
    """A request of a failed pass is still in the engine, or it has finished."""
    ended = {event.request_id for event in change.events_of(seen.Finished)}
    for landing in change.landings:
        if landing.failed and landing.request_id not in change.after.request_by_id.keys() | ended:
            yield found(request_ref(landing.request_id), ReleaseCode.VANISHED, launch=landing.launch)


def _remains(snapshot: Snapshot, request_id: int, cause: str) -> Evidence:
    subject, owner = request_ref(request_id), seen.Owner(seen.REQUEST_KIND, request_id)
    if request_id in snapshot.record_by_request:
        row = snapshot.record_by_request[request_id].row
        yield found(subject, ReleaseCode.KEEPS_RECORD, row=row, after=cause)
    for pool in snapshot.pools:
        units = tuple(unit for holding in pool.holdings if holding.owner == owner for unit in holding.units)
        if units:
            yield found(subject, ReleaseCode.KEEPS_UNITS, pool=pool.name, units=units, after=cause)
