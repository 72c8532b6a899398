"""Streaming sessions: their turns, and the KV that they keep between turns.

On a server: A turn continues on the KV of other tokens, which is a wrong answer; or it is refused, or the KV of a
session is lost or never freed.
"""

from swarden.invariants.events import SESSION_KIND, Finished, GivenUp, Kept, Lent, Owner, TurnRefused
from swarden.invariants.invariant import invariant, state_invariant
from swarden.invariants.kinds import Place
from swarden.invariants.laws.content.outputs import tokens_are_known
from swarden.invariants.transition import Transition, When
from swarden.invariants.view import SessionView
from swarden.invariants.violation import Code, Evidence, Ref, found, request_ref


class SessionCode(Code):
    TURN_OF_CLOSED_SESSION = "turn of {session}, which is closed"
    TURN_OF_IDLE_SESSION = "turn of {session}, but the session has no turn"
    SECOND_TURN = "a turn of {session} beside {turn}"
    OTHER_NAMESPACE = "in namespace {namespace}, its {session} is in {session_namespace}"
    TURN_LOST = "its turn is {turn}, which is in no queue"
    RECORD_OF_CLOSED_SESSION = "keeps {kept_len} tokens, but is closed"
    RECORD_BESIDE_TURN = "keeps a record beside that of its turn {turn}"
    KEPT_LEN_DIFFERS = "has kept_len {noted_len}, but keeps {kept_len} tokens"
    CONTINUED_TOO_FAR = "continues {session} at {length}, but the session kept {kept_len} tokens"
    CONTINUED_ON_OTHER_PAGES = "continues {session} on pages {pages}, but the session kept {kept}"
    KEPT_TOO_MUCH = "keeps {kept_len} tokens, but {delivered} were delivered"
    CLOSED_DURING_TURN = "closed while its turn {turn} goes on"
    REFUSED_WHILE_IDLE = "refused, but {session} is open and has no turn"
    CHANGED_UNREPORTED = "kept {was_len} tokens and keeps {kept_len}, without an event"


def session_ref(session_id: int) -> Ref:
    return Ref(SESSION_KIND, session_id)


@invariant(When.OP, needs=("sessions", "requests"))
def session_has_one_turn(change: Transition) -> Evidence:
    """A session has at most one turn, in its namespace and in a queue; a closed session has none.

    A session may still name a turn that finished in this step.
    """
    after = change.after
    for request in after.requests or ():
        if not request.session:
            continue
        subject, session = request_ref(request.id), after.session_by_id.get(request.session)
        if session is None:
            yield found(subject, SessionCode.TURN_OF_CLOSED_SESSION, session=session_ref(request.session))
        elif not session.turn:
            yield found(subject, SessionCode.TURN_OF_IDLE_SESSION, session=session_ref(session.id))
        elif session.turn != request.id:
            yield found(
                subject, SessionCode.SECOND_TURN, session=session_ref(session.id), turn=request_ref(session.turn)
            )
        elif session.namespace != request.namespace:
            namespaces = {"namespace": request.namespace, "session_namespace": session.namespace}
            yield found(subject, SessionCode.OTHER_NAMESPACE, session=session_ref(session.id), **namespaces)
    for session in after.sessions or ():
        if session.turn and session.turn not in after.request_by_id and not _has_just_ended(change, session.turn):
            yield found(session_ref(session.id), SessionCode.TURN_LOST, turn=request_ref(session.turn))


@state_invariant(needs=("sessions", "records"), reads=("sessions", "records"))
def kept_records_match_their_sessions(change: Transition) -> Evidence:
    """A session keeps a record only if it is open and its turn has none; kept_len is its length, 0 without a record."""
    after = change.after
    kept = {record.owner.id: record for record in after.records or () if record.owner.kind == SESSION_KIND}
    for session_id, record in kept.items():
        subject, session = session_ref(session_id), after.session_by_id.get(session_id)
        if session is None:
            yield found(subject, SessionCode.RECORD_OF_CLOSED_SESSION, kept_len=record.committed_len)
        elif session.turn in after.record_by_request:
            yield found(subject, SessionCode.RECORD_BESIDE_TURN, turn=request_ref(session.turn))
    for session in after.sessions or ():
        committed = kept[session.id].committed_len if session.id in kept else 0
        if session.kept_len != committed:
            lengths = {"noted_len": session.kept_len, "kept_len": committed}
            yield found(session_ref(session.id), SessionCode.KEPT_LEN_DIFFERS, **lengths)


@invariant(When.OP, needs=("sessions", "records", "Kept"), on=(Lent,))
def turns_continue_on_kept_pages(change: Transition) -> Evidence:
    """A turn continues on the pages that its session kept, and uses only tokens that were written.

    KV that the session kept in the same step is not checked.
    """
    page_size = change.after.components[0].page_size
    kept = {record.owner: record for record in change.before.records or ()}
    for event in change.in_order(Kept, Lent):
        if isinstance(event, Kept):
            kept.pop(Owner(SESSION_KIND, event.session), None)
        elif isinstance(event, Lent):
            record = kept.pop(Owner(SESSION_KIND, event.session), None)
            if record is None:
                continue
            subject, own = request_ref(event.request_id), list(record.units[0])[: -(-event.length // page_size)]
            if event.length > record.committed_len:
                lengths = {"length": event.length, "kept_len": record.committed_len}
                yield found(subject, SessionCode.CONTINUED_TOO_FAR, session=session_ref(event.session), **lengths)
            elif list(event.pages) != own:
                pages = {"pages": tuple(event.pages), "kept": tuple(own)}
                yield found(subject, SessionCode.CONTINUED_ON_OTHER_PAGES, session=session_ref(event.session), **pages)


@invariant(When.STEP, on=(Kept,), given=tokens_are_known)
def session_keeps_only_delivered_tokens(change: Transition) -> Evidence:
    """A session keeps no more tokens than the prompt and the delivered output of its last turn."""
    for event in change.events_of(Kept):
        delivered = len(change.reference.tokens_of(event.request_id))
        if delivered and event.length > delivered:
            lengths = {"kept_len": event.length, "delivered": delivered}
            yield found(session_ref(event.session), SessionCode.KEPT_TOO_MUCH, **lengths)


@invariant(When.OP, needs=("sessions", "requests"))
def session_outlives_its_turn(change: Transition) -> Evidence:
    """A session stays open until its turn has ended."""
    after = change.after
    for session in change.before.sessions or ():
        if session.turn in after.request_by_id and session.id not in after.session_by_id:
            turn = request_ref(session.turn)
            yield found(session_ref(session.id), SessionCode.CLOSED_DURING_TURN, turn=turn)


@invariant(When.OP, needs=("sessions",), on=(TurnRefused,))
def turns_are_refused_only_by_closed_or_busy_sessions(change: Transition) -> Evidence:
    """A turn is refused only if its session is closed, closes after its turn, or has a turn."""
    for event in change.events_of(TurnRefused):
        seen = [snapshot.session_by_id.get(event.session) for snapshot in (change.before, change.after)]
        if all(session is not None and not session.turn and not session.is_closing for session in seen):
            yield found(
                request_ref(event.request_id), SessionCode.REFUSED_WHILE_IDLE, session=session_ref(event.session)
            )


@invariant(When.OP, needs=("sessions", "Lent", "Kept", "GivenUp"))
def idle_sessions_keep_their_kv(change: Transition) -> Evidence:
    """The KV that a session keeps changes only if a turn continues on it or ends, or the session releases it.

    A waiting turn may cut it to the turn's own tokens, rounded down to whole pages.  A turn that was rejected, or that
    ended while it waited, does not change it.  Only the length is compared.
    """
    for session in change.before.sessions or ():
        now = change.after.session_by_id.get(session.id)
        if now is None or now.kept_len == session.kept_len or session.id in change.once(_sessions_of_reported_kv):
            continue
        if not _is_cut_by_its_turn(change, session, now):
            lengths = {"was_len": session.kept_len, "kept_len": now.kept_len}
            yield found(session_ref(session.id), SessionCode.CHANGED_UNREPORTED, **lengths)


def _sessions_of_reported_kv(change: Transition) -> set[int]:
    """The sessions of which a turn took or left the KV, or which released it."""
    return {event.session for event in change.in_order(Lent, Kept, GivenUp) if isinstance(event, (Lent, Kept, GivenUp))}


def _is_cut_by_its_turn(change: Transition, before: SessionView, after: SessionView) -> bool:
    turn = change.after.request_by_id.get(after.turn)
    if turn is None or turn.place != Place.WAITING:
        return False
    known_len = turn.prompt_len + turn.num_outputs
    return known_len - change.after.limits.page_size <= after.kept_len < before.kept_len


def _has_just_ended(change: Transition, request: int) -> bool:
    return any(event.request_id == request for event in change.events_of(Finished))
