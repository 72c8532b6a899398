"""Forward passes: the requests of a batch, where each continues, and the tokens that are committed.

A landing is the result of a completed pass for one request; it counts, or is stale (see passes.py).

On a server: Tokens are computed twice, skipped or taken as computed too early: a wrong answer, or passes for requests
that have ended.
"""

from typing import NamedTuple

import swarden.invariants.events as seen
from swarden.invariants.invariant import invariant
from swarden.invariants.transition import Transition, When
from swarden.invariants.violation import Code, Evidence, Found, Ref, found, owner_ref, request_ref


class BatchCode(Code):
    REQUEST_TWICE = "computes {requests} twice"
    TOO_MANY_REQUESTS = "computes {count} requests, at most {most} may run"
    NO_TOKENS = "launch {launch} computes no token for it: [{start}, {end})"
    RESUMED_ELSEWHERE = "launch {launch} computes [{start}, {end}), but launched_len was {launched_len}"
    STARTED_ELSEWHERE = "launch {launch} computes [{start}, {end}), but it was admitted at {admitted_at}"
    NOT_ADMITTED = "launch {launch} computes [{start}, {end}), but it has no record and was not admitted"
    HAS_ENDED = "launch {launch} computes [{start}, {end}), but the request has ended"
    COMMITTED_OTHER_LEN = "committed_len is {committed_len}, but its last valid result ends at {want}"


@invariant(When.OP, on=(seen.Launched,))
def passes_compute_each_request_once(change: Transition) -> Evidence:
    """A pass computes at least one token for each of its requests, each once, and has at most max_running_requests."""
    most = change.after.limits.max_running_requests
    for event in change.events_of(seen.Launched):
        subject = Ref("launch", event.launch)
        ids = [request for request, _, _ in event.entries]
        if len(set(ids)) != len(ids):
            twice = tuple(request_ref(id) for id in sorted({id for id in ids if ids.count(id) > 1}))
            yield found(subject, BatchCode.REQUEST_TWICE, requests=twice)
        if len(ids) > most:
            yield found(subject, BatchCode.TOO_MANY_REQUESTS, count=len(ids), most=most)
        for request, start, end in event.entries:
            if end <= start:
                yield found(request_ref(request), BatchCode.NO_TOKENS, launch=event.launch, start=start, end=end)


@invariant(When.OP, needs=("requests",), on=(seen.Launched,))
def passes_compute_unfinished_requests(change: Transition) -> Evidence:
    """A pass computes no request that has ended before the step, whether the client waited for it or aborted it."""
    finished = {event.request_id for event in change.events_of(seen.Finished)}
    present = finished.union(change.before.request_by_id, change.after.request_by_id)
    for event in change.events_of(seen.Launched):
        for request, start, end in event.entries:
            if request not in present:
                yield found(request_ref(request), BatchCode.HAS_ENDED, launch=event.launch, start=start, end=end)


@invariant(When.OP, needs=("records", "Admitted"), on=(seen.Launched,))
def requests_resume_where_they_stopped(change: Transition) -> Evidence:
    """A pass computes a request from the end of its launched tokens, or from the start of its admitted range.

    After a load, a transfer or accepted drafts, the launched tokens end where that KV ends.
    """
    reached = {request: record.launched_len for request, record in change.before.record_by_request.items()}
    admitted: dict[int, int] = {}
    for event in change.pass_events:
        if isinstance(event, seen.Admitted):
            admitted[event.request_id] = event.start
        elif isinstance(event, seen.Launched):
            for entry in event.entries:
                launched, planned = reached.get(entry[0]), admitted.pop(entry[0], None)
                if {launched, planned} - {None} != {entry[1]}:
                    yield _wrong_start(event.launch, PassEntry(*entry), launched, planned)
                reached[entry[0]] = entry[2]
        elif isinstance(event, seen.Completed):
            for landing in change.landings:
                if landing.counts and landing.launch == event.launch and landing.accepted:
                    reached[landing.request_id] = landing.end
        else:
            _follow(change, event, reached)


@invariant(When.OP, needs=("records", "launches", "Launched", "Completed"))
def committed_tokens_have_landed(change: Transition) -> Evidence:
    """A record's committed_len is the end of its last valid result; tokens in flight are not committed.

    Without a result it is the start of the admitted range, or the length of the loaded or transferred KV.
    """
    reached = {request: record.committed_len for request, record in change.before.record_by_request.items()}
    for event in change.pass_events:
        if isinstance(event, seen.Admitted):
            reached.setdefault(event.request_id, event.start)
        elif isinstance(event, seen.Completed):
            for landing in change.landings:
                if landing.counts and landing.launch == event.launch:
                    reached[landing.request_id] = landing.end
        else:
            _follow(change, event, reached)
    for request_id, record in change.after.record_by_request.items():
        want = reached.get(request_id)
        if want is not None and record.committed_len != want:
            committed = record.committed_len
            yield found(owner_ref(record.owner), BatchCode.COMMITTED_OTHER_LEN, committed_len=committed, want=want)


class PassEntry(NamedTuple):
    """Positions [start, end) of a request that a pass computes."""

    request_id: int
    start: int
    end: int


def _follow(change: Transition, event: NamedTuple, reached: dict[int, int]) -> None:
    """Update `reached` by an event: drop requests that release their record; set the length of new KV."""
    if isinstance(event, seen.RECORD_RELEASES):
        reached.pop(event.request_id, None)
    elif isinstance(event, (seen.Loaded, seen.TakenOver)):
        reached[event.request_id] = event.length
    elif isinstance(event, seen.Failed):
        for landing in change.landings:
            if landing.failed and landing.launch == event.launch:
                reached.pop(landing.request_id, None)
    elif isinstance(event, seen.Paused) and not event.keeps:
        reached.clear()


def _wrong_start(launch: int, entry: PassEntry, launched: int | None, planned: int | None) -> Found:
    subject, values = request_ref(entry.request_id), {"launch": launch, "start": entry.start, "end": entry.end}
    if launched is None and planned is None:
        return found(subject, BatchCode.NOT_ADMITTED, **values)
    if launched is not None and launched != entry.start:
        return found(subject, BatchCode.RESUMED_ELSEWHERE, launched_len=launched, **values)
    return found(subject, BatchCode.STARTED_ELSEWHERE, admitted_at=planned, **values)
