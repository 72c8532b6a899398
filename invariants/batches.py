"""What is computed in one forward pass, and what of it counts."""

from invariants.events import LEAVINGS, Admitted, Completed, Failed, Launched, Loaded, Paused, TakenOver
from invariants.invariant import invariant
from invariants.transition import Transition, When
from invariants.violation import Evidence
from invariants.wording import request_name


@invariant(When.OP, on=(Launched,))
def batches_are_well_formed(change: Transition) -> Evidence:
    """A pass computes something for each of its requests, once, and no more than the engine was built for."""
    limits = change.after.limits
    for event in change.events_of(Launched):
        subject = f"launch {event.launch}"
        ids = [request for request, _, _ in event.entries]
        if not ids:
            yield subject, "computes nothing"
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


def chunks_are_limited(change: Transition) -> bool:
    return change.after.limits.chunk_len is not None


@invariant(When.OP, on=(Admitted,), given=chunks_are_limited)
def a_pass_prefills_within_its_budget(change: Transition) -> Evidence:
    """A pass that prefills computes chunk_len tokens at most, with those of who decodes beside it."""
    budget = change.after.limits.chunk_len or 0
    for event in change.events_of(Launched):
        count = sum(end - start for _, start, end in event.entries)
        if count > budget and not change.admitted.isdisjoint([entry[0] for entry in event.entries]):
            yield f"launch {event.launch}", f"prefills, and computes {count} tokens, at most {budget}"


@invariant(When.OP, needs=("records",), on=(Launched,))
def computation_goes_on_where_it_stopped(change: Transition) -> Evidence:
    """An entry starts where what was launched for its request ends, be it in flight still, or as it was admitted."""
    reached = {request: record.launched_len for request, record in change.before.record_by_request.items()}
    promised: dict[int, tuple[int, int]] = {}
    for event in change.pass_events:
        if isinstance(event, LEAVINGS):
            reached.pop(event.request_id, None)
        elif isinstance(event, Failed):
            for landing in change.landings:
                if landing.failed and landing.launch == event.launch:
                    reached.pop(landing.request_id, None)
        elif isinstance(event, Completed):
            for landing in change.landings:
                if landing.counts and landing.launch == event.launch and landing.accepted:
                    reached[landing.request_id] = landing.end
        elif isinstance(event, Paused):
            reached.clear()
        elif isinstance(event, (Loaded, TakenOver)):
            reached[event.request_id] = event.length
        elif isinstance(event, Admitted):
            promised[event.request_id] = (event.start, event.end)
        elif isinstance(event, Launched):
            for request, start, end in event.entries:
                wrong = _wrong_start(promised.pop(request, None), reached.get(request), (start, end))
                if wrong:
                    yield request_name(request), f"launch {event.launch} computes [{start}, {end}), {wrong}"
                reached[request] = end


@invariant(When.OP, needs=("records", "launches"))
def what_is_committed_has_landed(change: Transition) -> Evidence:
    """A record's committed_len is where the last result that counted for it ends, and nothing in flight is in it."""
    reached = {request: record.committed_len for request, record in change.before.record_by_request.items()}
    for event in change.pass_events:
        if isinstance(event, LEAVINGS):
            reached.pop(event.request_id, None)
        elif isinstance(event, (Loaded, TakenOver)):
            reached[event.request_id] = event.length
        elif isinstance(event, Admitted):
            reached.setdefault(event.request_id, event.start)
        elif isinstance(event, Completed):
            for landing in change.landings:
                if landing.launch == event.launch and landing.failed:
                    reached.pop(landing.request_id, None)
                elif landing.launch == event.launch and landing.counts:
                    reached[landing.request_id] = landing.end
    for request_id, record in change.after.record_by_request.items():
        expected = reached.get(request_id)
        if expected is not None and record.committed_len != expected:
            yield str(record.owner), f"committed_len is {record.committed_len}, what counts ends at {expected}"


def _wrong_start(promised: tuple[int, int] | None, reached: int | None, entry: tuple[int, int]) -> str:
    """What is wrong with where an entry starts; empty where nothing is."""
    if promised is not None and promised != entry:
        return f"it was admitted for [{promised[0]}, {promised[1]})"
    if reached is not None and reached != entry[0]:
        return f"launched_len was {reached}"
    return "yet it has no record and was not admitted" if reached is None and promised is None else ""
