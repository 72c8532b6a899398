"""Streaming sessions: whose turn it is, and what the idle ones keep."""

from collections import Counter

from invariants.events import Finished, GivenUp, Kept, Lent, TurnRefused
from invariants.invariant import invariant
from invariants.laws.content.outputs import tokens_are_known
from invariants.transition import Transition, When
from invariants.view import SESSION_KIND, Owner, RecordView, Snapshot
from invariants.violation import Evidence
from invariants.wording import request_name


@invariant(When.OP, needs=("sessions", "requests"))
def a_session_has_one_turn(change: Transition) -> Evidence:
    """Who is in a queue as a turn is the one turn of an open session, and in its namespace."""
    after = change.after
    of_session = Counter(request.session for request in after.requests or () if request.session)
    for request in after.requests or ():
        session = after.session_by_id.get(request.session)
        if request.session and session is None:
            yield (
                request_name(request.id),
                f"is {request.place} as a turn of session {request.session}, which is closed",
            )
        elif session is not None and (session.turn != request.id or of_session[session.id] > 1):
            has_it = request_name(session.turn) if session.turn else "nobody"
            yield request_name(request.id), f"is {request.place} as a turn of session {session.id}, yet {has_it} has it"
        elif session is not None and session.namespace != request.namespace:
            namespaces = f"namespace {request.namespace}, its session is in {session.namespace}"
            yield request_name(request.id), f"is in {namespaces}"
    for session in after.sessions or ():
        if session.turn and session.turn not in after.request_by_id and not _has_just_ended(change, session.turn):
            yield f"session {session.id}", f"its turn is {request_name(session.turn)}, which is in no queue"


@invariant(When.OP, needs=("sessions", "records"))
def idle_sessions_keep_what_is_written(change: Transition) -> Evidence:
    """What a session keeps has been computed, has no row, no room behind it, and nobody computes in it.

    A session that is not open keeps nothing.
    """
    after = change.after
    kept = {record.owner.id: record for record in after.records or () if record.owner.kind == SESSION_KIND}
    for session_id, record in kept.items():
        session = after.session_by_id.get(session_id)
        if session is None:
            yield str(record.owner), f"keeps {record.committed_len} tokens, yet it is not open"
        elif session.turn in after.record_by_request:
            yield str(record.owner), f"keeps {record.committed_len} tokens beside its turn {request_name(session.turn)}"
        if record.row:
            yield str(record.owner), f"has row {record.row} without a turn"
        if record.allocated_len != record.committed_len or record.launched_len != record.committed_len:
            lengths = f"launched_len {record.launched_len}, allocated_len {record.allocated_len}"
            yield str(record.owner), f"keeps {record.committed_len} tokens with {lengths}"
    for session in after.sessions or ():
        committed = kept[session.id].committed_len if session.id in kept else 0
        if session.kept_len != committed:
            yield f"session {session.id}", f"has noted {session.kept_len} tokens, and keeps {committed}"


@invariant(When.OP, needs=("sessions", "records"), on=(Lent, Kept))
def turns_go_on_from_what_is_kept(change: Transition) -> Evidence:
    """A turn starts on the very pages that its session kept, at most as many as were written."""
    kept = {record.owner: record for record in change.before.records or ()}
    for event in change.events:
        if isinstance(event, Kept):
            kept.pop(Owner(SESSION_KIND, event.session), None)
        elif isinstance(event, Lent):
            record = kept.pop(Owner(SESSION_KIND, event.session), None)
            if record is not None and (why := _why_not_its_own(change.after, event, record)):
                yield request_name(event.request_id), f"goes on from session {event.session}, {why}"


@invariant(When.STEP, on=(Kept,), given=tokens_are_known)
def a_session_keeps_no_more_than_was_said(change: Transition) -> Evidence:
    """What a session keeps are tokens of its last turn, prompt and output; nothing that was computed beyond."""
    for event in change.events_of(Kept):
        said = len(change.reference.tokens_of(event.request_id))
        if said and event.length > said:
            yield f"session {event.session}", f"keeps {event.length} tokens, {said} were said"


@invariant(When.OP, needs=("sessions", "requests"))
def closing_waits_for_the_turn(change: Transition) -> Evidence:
    """A session is there until its turn has ended, and no longer once it is to be closed."""
    after = change.after
    for session in change.before.sessions or ():
        if session.turn in after.request_by_id and session.id not in after.session_by_id:
            yield f"session {session.id}", f"is closed, yet its turn {request_name(session.turn)} goes on"
    for session in after.sessions or ():
        if session.is_closing and not session.turn:
            yield f"session {session.id}", "is to be closed, has no turn, and is still open"


@invariant(When.OP, needs=("sessions",), on=(TurnRefused,))
def only_a_turn_too_many_is_refused(change: Transition) -> Evidence:
    """Who may take a turn of a session that is open and in which nobody has one is not refused."""
    for event in change.events_of(TurnRefused):
        seen = [snapshot.session_by_id.get(event.session) for snapshot in (change.before, change.after)]
        if all(session is not None and not session.turn for session in seen):
            yield request_name(event.request_id), f"is refused, yet nobody has the turn of session {event.session}"


@invariant(When.OP, needs=("sessions",))
def sessions_change_only_by_their_turns(change: Transition) -> Evidence:
    """What a session keeps changes when a turn goes on from it, has ended, or when it is given up, and not else.

    So a turn that was rejected, or ended while it waited, leaves its session as it was.
    """
    told = {event.session for event in change.events if isinstance(event, (Lent, Kept, GivenUp))}
    for session in change.before.sessions or ():
        now = change.after.session_by_id.get(session.id)
        if now is not None and now.kept_len != session.kept_len and session.id not in told:
            yield f"session {session.id}", f"kept {session.kept_len} tokens, keeps {now.kept_len}, and nothing was told"


def _has_just_ended(change: Transition, request: int) -> bool:
    return any(event.request_id == request for event in change.events_of(Finished))


def _why_not_its_own(after: Snapshot, event: Lent, record: RecordView) -> str:
    pages = -(-event.length // after.limits.page_size)
    if event.length > record.committed_len:
        return f"at {event.length}, yet it kept {record.committed_len} tokens"
    own = list(record.units[0])[:pages]
    return "" if list(event.pages) == own else f"on pages {list(event.pages)}, yet it kept {own}"
