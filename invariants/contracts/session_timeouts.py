"""Sessions without a turn are closed after a time.

On a server: A client loses its session too early and computes all of it again; or nobody uses a session, and its pages
are kept from others.
"""

from swarden.invariants.invariant import invariant
from swarden.invariants.laws.lifecycle.sessions import session_ref
from swarden.invariants.transition import Transition, When
from swarden.invariants.violation import Code, Evidence, found


class SessionTimeoutCode(Code):
    EARLY = "closed {idle_ms} ms after its last turn, the timeout is {timeout_ms} ms"
    LATE = "still open {idle_ms} ms after its last turn, the timeout is {timeout_ms} ms"


def has_session_timeout(change: Transition) -> bool:
    """Do the limits name a timeout of sessions (`session_timeout`)?"""
    return change.after.limits.session_timeout is not None


@invariant(When.STEP, needs=("sessions",), given=has_session_timeout)
def idle_sessions_close_in_time(change: Transition) -> Evidence:
    """A step closes a session if, and only if, it was opened and had its last turn at least the timeout ago.

    The time is that of the harness's own clock.  A refused turn does not count, nor does a session that its client has
    closed.  A session with a turn may be marked to be closed behind it, if the timeout counts from its begin.
    """
    limits, past = change.after.limits, change.reference.past
    assert limits.session_timeout is not None, "session_timeout is needed"
    timeout_ms, late_ms, from_begin = limits.session_timeout
    now_ms = change.reference.now_ms + past.steps_ms + limits.ms_per_step
    for session in [session for session in change.before.sessions or () if session.id in past.sessions]:
        use, later = past.sessions[session.id], change.after.session_by_id.get(session.id)
        idle_ms, old_ms = now_ms - use.ended_ms, now_ms - (use.began_ms if from_begin else use.ended_ms)
        is_old = old_ms >= timeout_ms and (from_begin or not session.turn)
        subject, is_closed = session_ref(session.id), later is None or later.is_closing
        if is_closed and not is_old and not session.is_closing:
            yield found(subject, SessionTimeoutCode.EARLY, idle_ms=old_ms, timeout_ms=timeout_ms)
        elif not is_closed and not session.turn and idle_ms >= timeout_ms + late_ms:
            yield found(subject, SessionTimeoutCode.LATE, idle_ms=idle_ms, timeout_ms=timeout_ms)
