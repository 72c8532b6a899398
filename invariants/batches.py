"""What is computed in one forward pass, and where each request is between two."""

from collections.abc import Sequence

from invariants.base import Evidence, Transition, When, invariant
from invariants.events import Admitted, Completed, Launched, RanOut, Retracted
from invariants.view import Snapshot
from invariants.wording import request_name

CHUNKED = "chunked"
WITH_RECORD = frozenset({"running", CHUNKED})
WITHOUT_RECORD = frozenset({"waiting"})


@invariant(When.OP, covers=("BATCH-WF",), on=(Launched,))
def batches_are_well_formed(change: Transition) -> Evidence:
    """A pass computes something for each of its requests, once, and no more than the engine was built for."""
    limits = change.after.limits
    for event in change.events_of(Launched):
        subject = f"launch {event.launch}"
        ids = [request for request, _, _ in event.entries]
        if len(set(ids)) != len(ids):
            twice = sorted({request for request in ids if ids.count(request) > 1})
            yield subject, f"computes {', '.join(map(request_name, twice))} twice"
        if len(ids) > limits.max_running_requests:
            yield subject, f"computes {len(ids)} requests, at most {limits.max_running_requests} may run"
        prefilled = sum([end - start for _, start, end in event.entries if end - start > 1])
        if limits.chunk_len is not None and prefilled > limits.chunk_len:
            yield subject, f"prefills {prefilled} tokens, at most {limits.chunk_len}"
        for request, start, end in event.entries:
            if end <= start:
                yield request_name(request), f"computes nothing in launch {event.launch}: [{start}, {end})"


@invariant(When.OP, covers=("BATCH-WF", "CURSOR", "CONTENT"), needs=("records",), on=(Launched,))
def computation_goes_on_where_it_stopped(change: Transition) -> Evidence:
    """An entry starts with what its request has committed, or as it was admitted, and ends committed."""
    admitted = {event.request_id: (event.start, event.end) for event in change.events_of(Admitted)}
    left = {event.request_id for event in change.events_of(Retracted)}
    left.update(event.request_id for event in change.events_of(RanOut))
    completed = {event.launch for event in change.events_of(Completed)}
    done: dict[int, int] = {}
    for launch in change.events_of(Launched):
        for request, start, end in launch.entries:
            promised = admitted.get(request) if request not in done else None
            committed = done.get(request)
            if committed is None and request not in left:
                committed = _committed(change.before, request)
            later = _committed(change.after, request)
            wrong = ""
            if promised is not None and promised != (start, end):
                wrong = f"it was admitted for [{promised[0]}, {promised[1]})"
            elif committed is not None and committed != start:
                wrong = f"committed_len was {committed}"
            elif committed is None and promised is None:
                wrong = "yet it has no record and was not admitted"
            elif later is not None and later < end and launch.launch in completed and request not in left:
                wrong = f"yet committed_len is {later} after it"
            if wrong:
                yield request_name(request), f"launch {launch.launch} computes [{start}, {end}), {wrong}"
            done[request] = end


@invariant(When.OP, covers=("BATCH-WF", "ROW-POOL"), needs=("requests", "records"))
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


def _committed(snapshot: Snapshot, request_id: int) -> int | None:
    record = snapshot.record_by_request.get(request_id)
    return record.committed_len if record is not None else None


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
