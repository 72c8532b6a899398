"""Sessions without a turn are closed after a time.

On a server: A client loses its session too early and computes all of it again; or nobody uses a session, and its pages
are kept from others.
"""

from swarden.invariants.events import SessionClosed
from swarden.invariants.invariant import invariant
from swarden.invariants.laws.lifecycle.sessions import session_ref
from swarden.invariants.transition import Transition, When
from swarden.invariants.violation import Code, Evidence, found


class SessionTimeoutCode(Code):
    EARLY = "closed {idle_ms} ms after its last turn, the timeout is {timeout_ms} ms"
    LATE = "still open {idle_ms} ms after its last turn, the timeout is {timeout_ms} ms"


def has_session_timeout(change: Transition) -> bool:
    """Do the limits name a timeout of sessions (`session_timeout_ms`)?"""
    return change.after.limits.session_timeout_ms is not None


@invariant(When.STEP, needs=("sessions", "SessionClosed"), given=has_session_timeout)
def idle_sessions_close_in_time(change: Transition) -> Evidence:
    """A step closes a session if, and only if, it was opened and had its last turn at least the timeout ago.

    The time is that of the harness's own clock.  A refused turn does not count, nor does a session that its client has
    closed.
    """
    limit, past, now_ms = change.after.limits.session_timeout_ms, change.reference.past, change.reference.now_ms
    assert limit is not None, "session_timeout_ms is needed"
    closed = {event.session for event in change.events_of(SessionClosed)}
    for session in [one for one in change.before.sessions or () if one.id in past.idle_since]:
        values = {"idle_ms": now_ms - past.idle_since[session.id], "timeout_ms": limit}
        is_due = not session.turn and values["idle_ms"] >= limit
        if session.id in closed and not is_due and not session.is_closing:
            yield found(session_ref(session.id), SessionTimeoutCode.EARLY, **values)
        elif is_due and session.id in change.after.session_by_id:
            yield found(session_ref(session.id), SessionTimeoutCode.LATE, **values)
