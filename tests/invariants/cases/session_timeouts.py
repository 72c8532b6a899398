"""Sessions that are closed too early or too late."""

from dataclasses import replace

from swarden.invariants.contracts.session_timeouts import SessionTimeoutCode, idle_sessions_close_in_time
from swarden.invariants.events import SessionClosed
from swarden.invariants.reference import Past, Reference
from swarden.invariants.view import SessionView
from swarden.invariants.violation import Ref, found
from tests.invariants.builders import AFTER, LIMITS, broken, idle

LIMIT_MS = 40
SESSION = SessionView(3, 0, 0, 8, False)


def after_ms(idle_ms, *events, session=SESSION):
    """A step behind which session 3, which was idle for that time, is open, unless an event closes it."""
    before = replace(AFTER, sessions=(session,), limits=LIMITS._replace(session_timeout_ms=LIMIT_MS))
    change = idle(*events, before=before, after=replace(before, sessions=() if events else (session,)))
    return replace(change, reference=Reference(now_ms=100, past=Past(idle_since={3: 100 - idle_ms})))


def at(code, idle_ms):
    return found(Ref("session", 3), code, idle_ms=idle_ms, timeout_ms=LIMIT_MS)


CLOSED = SessionClosed(3)
CASES = [
    broken(idle_sessions_close_in_time, "early", after_ms(39, CLOSED), at(SessionTimeoutCode.EARLY, 39)),
    broken(idle_sessions_close_in_time, "late", after_ms(40), at(SessionTimeoutCode.LATE, 40)),
]
