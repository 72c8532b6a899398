"""The queue of each request, and whether it has a record there.

On a server: A request in no queue is never answered; one in two queues is computed twice, and its pages are freed
twice.
"""

from collections.abc import Mapping

from swarden.invariants.invariant import state_invariant
from swarden.invariants.kinds import Place
from swarden.invariants.transition import Transition
from swarden.invariants.view import RequestView
from swarden.invariants.violation import Code, Evidence, found, request_ref

QUEUES = frozenset(Place) - {Place.LOST}
WITH_RECORD = frozenset({Place.RUNNING, Place.LOADING, Place.CHUNKED})


class PlaceCode(Code):
    IN_TWO_QUEUES = "in two queues: {first} and {second}"
    LOST = "unfinished, in no queue"
    UNKNOWN_PLACE = "unfinished, at the unknown place '{place}'"
    WITHOUT_RECORD = "{place}, but has no record"
    WAITS_WITH_RECORD = "waiting, but has a record in row {row}"
    RECORD_WITHOUT_REQUEST = "has a record in row {row}, but is in no queue"


@state_invariant(needs=("requests",), reads=("requests",))
def requests_are_in_one_queue(change: Transition) -> Evidence:
    """Every unfinished request is in exactly one queue of the engine."""
    seen: dict[int, RequestView] = {}
    for request in change.after.requests or ():
        first = seen.setdefault(request.id, request)
        if first is not request:
            places = {"first": first.place, "second": request.place}
            yield found(request_ref(request.id), PlaceCode.IN_TWO_QUEUES, **places)
        if request.place == Place.LOST:
            yield found(request_ref(request.id), PlaceCode.LOST)
        elif request.place not in QUEUES:
            yield found(request_ref(request.id), PlaceCode.UNKNOWN_PLACE, place=request.place)


@state_invariant(needs=("requests", "records"), reads=("requests", "records"))
def records_match_request_places(change: Transition) -> Evidence:
    """A request has a record while it runs, loads or is between chunks, and none while it waits.

    Each record of a request belongs to a request in a queue.  A linked request may have a record or none.
    """
    records = change.after.record_by_request
    places: Mapping[int, str] = {request.id: request.place for request in change.after.requests or ()}
    for request_id, place in places.items():
        if place in WITH_RECORD and request_id not in records:
            yield found(request_ref(request_id), PlaceCode.WITHOUT_RECORD, place=place)
        elif place == Place.WAITING and request_id in records:
            yield found(request_ref(request_id), PlaceCode.WAITS_WITH_RECORD, row=records[request_id].row)
    for request_id in sorted(records.keys() - places.keys()):
        yield found(request_ref(request_id), PlaceCode.RECORD_WITHOUT_REQUEST, row=records[request_id].row)
