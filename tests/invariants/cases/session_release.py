"""Idle sessions that keep a row or unwritten pages, or are not closed."""

from swarden.invariants.contracts.session_release import (
    SessionReleaseCode,
    closing_sessions_close_after_their_turn,
    idle_sessions_keep_only_written_kv,
)
from swarden.invariants.violation import Ref, found
from tests.invariants.builders import broken
from tests.invariants.cases.sessions import IDLE, KEPT, RECORDS, RUNS, with_sessions

CASES = [
    broken(
        idle_sessions_keep_only_written_kv,
        "keeps-a-row",
        with_sessions(records=(RECORDS[0], KEPT._replace(row=2))),
        found(Ref("session", 4), SessionReleaseCode.KEEPS_ROW, row=2),
    ),
    broken(
        idle_sessions_keep_only_written_kv,
        "keeps-unwritten-pages",
        with_sessions(records=(RECORDS[0], KEPT._replace(allocated_len=12))),
        found(Ref("session", 4), SessionReleaseCode.KEEPS_UNWRITTEN, committed_len=8, launched_len=8, allocated_len=12),
    ),
    broken(
        closing_sessions_close_after_their_turn,
        "not-closed-after-its-turn",
        with_sessions(sessions=(RUNS, IDLE._replace(is_closing=True))),
        found(Ref("session", 4), SessionReleaseCode.STILL_OPEN),
    ),
]
