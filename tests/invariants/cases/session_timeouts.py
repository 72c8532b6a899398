"""Sessions that are closed too early or too late."""

from dataclasses import replace

from swarden.invariants.contracts.session_timeouts import SessionTimeoutCode, idle_sessions_close_in_time
from swarden.invariants.limits import SessionTimeout
from swarden.invariants.reference import Past, Reference, SessionUse
from swarden.invariants.view import SessionView
from swarden.invariants.violation import Ref, found
from tests.invariants.builders import AFTER, LIMITS, broken, healthy, idle

LIMIT_MS = 40
SESSION = SessionView(3, 0, 0, 8, False)
CLOSING = SESSION._replace(is_closing=True)
BUSY = SESSION._replace(turn=1)
FROM_END = SessionTimeout(LIMIT_MS)
FROM_BEGIN = SessionTimeout(LIMIT_MS, late_ms=10, from_begin=True)


def after_ms(idle_ms, *later, before=SESSION, timeout=FROM_END):
    """A step of 20 ms behind which session 3 is `later`, or closed; its last turn took 5 ms, and ended so long ago."""
    limits = LIMITS._replace(session_timeout=timeout, ms_per_step=20)
    state = replace(AFTER, sessions=(before,), limits=limits)
    past = Past(sessions={3: SessionUse(1, 95 - idle_ms, 100 - idle_ms)}, steps_ms=50)
    return replace(idle(before=state, after=replace(state, sessions=later)), reference=Reference(now_ms=30, past=past))


def at(code, idle_ms):
    return found(Ref("session", 3), code, idle_ms=idle_ms, timeout_ms=LIMIT_MS)


EARLY, LATE = SessionTimeoutCode.EARLY, SessionTimeoutCode.LATE
CASES = [
    healthy(idle_sessions_close_in_time, after_ms(39, SESSION), "open"),
    healthy(idle_sessions_close_in_time, after_ms(40), "closed"),
    healthy(idle_sessions_close_in_time, after_ms(90, BUSY, before=BUSY), "has-a-turn"),
    healthy(idle_sessions_close_in_time, after_ms(0, before=CLOSING), "by-client"),
    healthy(idle_sessions_close_in_time, after_ms(49, SESSION, timeout=FROM_BEGIN), "looked-at-later"),
    healthy(idle_sessions_close_in_time, after_ms(35, CLOSING, before=BUSY, timeout=FROM_BEGIN), "behind-its-turn"),
    broken(idle_sessions_close_in_time, "early", after_ms(39), at(EARLY, 39)),
    broken(idle_sessions_close_in_time, "early-in-a-turn", after_ms(90, before=BUSY), at(EARLY, 90)),
    broken(idle_sessions_close_in_time, "early-by-its-begin", after_ms(34, CLOSING, timeout=FROM_BEGIN), at(EARLY, 39)),
    broken(idle_sessions_close_in_time, "late", after_ms(40, SESSION), at(LATE, 40)),
    broken(idle_sessions_close_in_time, "later", after_ms(50, SESSION, timeout=FROM_BEGIN), at(LATE, 50)),
]
