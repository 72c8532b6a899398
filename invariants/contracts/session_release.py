"""A session releases everything but its written KV at the end of a turn, and closes when asked to.

On a server: Sessions without a turn keep rows and pages that other requests need, until no request fits.
"""

from swarden.invariants.events import SESSION_KIND
from swarden.invariants.invariant import state_invariant
from swarden.invariants.laws.lifecycle.sessions import session_ref
from swarden.invariants.transition import Transition
from swarden.invariants.violation import Code, Evidence, found


class SessionReleaseCode(Code):
    KEEPS_ROW = "keeps row {row} without a turn"
    KEEPS_UNWRITTEN = (
        "keeps {committed_len} tokens with launched_len {launched_len}, allocated_len {allocated_len}: "
        "all must be equal"
    )
    STILL_OPEN = "is to be closed and has no turn, but is still open"


@state_invariant(needs=("sessions", "records"), reads=("records",))
def idle_sessions_keep_only_written_kv(change: Transition) -> Evidence:
    """The record of an idle session has no row; its launched_len and allocated_len equal its committed_len."""
    for record in change.after.records or ():
        if record.owner.kind != SESSION_KIND:
            continue
        subject = session_ref(record.owner.id)
        if record.row:
            yield found(subject, SessionReleaseCode.KEEPS_ROW, row=record.row)
        if record.allocated_len != record.committed_len or record.launched_len != record.committed_len:
            values = {"committed_len": record.committed_len, "launched_len": record.launched_len}
            yield found(subject, SessionReleaseCode.KEEPS_UNWRITTEN, **values, allocated_len=record.allocated_len)


@state_invariant(needs=("sessions",), reads=("sessions",))
def closing_sessions_close_after_their_turn(change: Transition) -> Evidence:
    """A session that is to be closed is closed as soon as it has no turn."""
    for session in change.after.sessions or ():
        if session.is_closing and not session.turn:
            yield found(session_ref(session.id), SessionReleaseCode.STILL_OPEN)
