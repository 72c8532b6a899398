"""In which queue each request is, and what an engine does in a pause."""

from collections.abc import Sequence

from invariants.events import Launched, Paused, Resumed
from invariants.invariant import invariant
from invariants.transition import Transition, When
from invariants.view import FENCE_KIND, HANDOVER_KIND, OUTSIDE_KIND, SESSION_KIND, TRANSFER_KINDS, Snapshot
from invariants.violation import Evidence
from invariants.wording import request_name, units_of

CHUNKED = "chunked"
WITH_RECORD = frozenset({"running", "loading", CHUNKED})
WITHOUT_RECORD = frozenset({"waiting"})


def there_is_a_pause(change: Transition) -> bool:
    return change.before.is_paused or change.after.is_paused


@invariant(When.OP, needs=("requests", "records"))
def requests_are_in_one_place(change: Transition) -> Evidence:
    """A request is in one queue; it has a record if it runs or is between chunks, and none while it waits."""
    requests, records = change.after.requests or (), change.after.record_by_request
    placed = {request.id: request.place for request in requests}
    places = list(placed.values())
    with_record = {request for request in placed if placed[request] in WITH_RECORD}
    if (
        len(placed) != len(requests)
        or places.count(CHUNKED) > 1
        or not with_record <= records.keys() <= placed.keys()
        or not WITHOUT_RECORD.isdisjoint([placed[request] for request in records])
    ):
        yield from _misplaced(change.after, [request.id for request in requests if request.place == CHUNKED])


@invariant(When.OP, needs=("records",), given=there_is_a_pause)
def a_paused_engine_stands_still(change: Transition) -> Evidence:
    """In a pause nothing is launched, and nobody has a record, a lock or a unit; what passes in flight read waits.

    What is being copied goes on, also from engine to engine, and a session keeps what it has.

    An engine tells when it begins and when it ends one.
    """
    after, is_paused, staying = change.after, change.before.is_paused, {SESSION_KIND, HANDOVER_KIND, *TRANSFER_KINDS}
    for event in change.pass_events:
        if isinstance(event, Launched) and is_paused:
            yield f"launch {event.launch}", "is launched in a pause"
        is_paused = isinstance(event, Paused) or (is_paused and not isinstance(event, Resumed))
    if is_paused != after.is_paused:
        yield "engine", "is in a pause, and told nobody" if after.is_paused else "has left a pause, and told nobody"
    for record in after.records or () if after.is_paused else ():
        if record.owner.kind not in staying:
            yield str(record.owner), f"has row {record.row} in a pause"
    for receipt in after.receipts or () if after.is_paused else ():
        if receipt.holder.kind != FENCE_KIND and receipt.holder.kind not in staying:
            yield f"receipt {receipt.id}", f"is out in a pause, held by {receipt.holder}"
    for pool in after.pools if after.is_paused else ():
        for holding in pool.holdings:
            if holding.units and not holding.cached and holding.owner.kind not in {OUTSIDE_KIND, *staying}:
                yield units_of(pool, holding.units), f"owned by {holding.owner} in a pause"


def _misplaced(snapshot: Snapshot, chunked: Sequence[int]) -> Evidence:
    places: dict[int, str] = {}
    records = snapshot.record_by_request
    for request in snapshot.requests or ():
        if request.id in places:
            yield request_name(request.id), f"is {places[request.id]} and {request.place}"
        places[request.id] = request.place
        if request.place in WITH_RECORD and request.id not in records:
            yield request_name(request.id), f"is {request.place}, yet it has no record"
        if request.place in WITHOUT_RECORD and request.id in records:
            yield request_name(request.id), f"is {request.place}, yet it has row {records[request.id].row}"
    if len(chunked) > 1:
        yield request_name(chunked[1]), f"is chunked, and so is {request_name(chunked[0])}"
    for request_id in sorted(records.keys() - places.keys()):
        yield request_name(request_id), f"has row {records[request_id].row}, yet it is in no queue"
