"""Idle sessions that keep a row, unwritten pages, or themselves."""

from invariants.contracts.session_release import (
    SessionReleaseCode,
    closing_sessions_close_after_their_turn,
    idle_sessions_keep_only_written_kv,
)
from invariants.violation import Ref, found
from tests.invariants.builders import broken, healthy
from tests.invariants.cases.sessions import IDLE, KEPT, RECORDS, RUNS, talking

CASES = [
    healthy(idle_sessions_keep_only_written_kv, talking()),
    broken(
        idle_sessions_keep_only_written_kv,
        "keeps-a-row",
        talking(records=(RECORDS[0], KEPT._replace(row=2))),
        found(Ref("session", 4), SessionReleaseCode.KEEPS_ROW, row=2),
    ),
    broken(
        idle_sessions_keep_only_written_kv,
        "keeps-unwritten-pages",
        talking(records=(RECORDS[0], KEPT._replace(allocated_len=12))),
        found(
            Ref("session", 4),
            SessionReleaseCode.KEEPS_UNWRITTEN,
            committed_len=8,
            launched_len=8,
            allocated_len=12,
        ),
    ),
    healthy(closing_sessions_close_after_their_turn, talking(sessions=(RUNS._replace(is_closing=True), IDLE))),
    broken(
        closing_sessions_close_after_their_turn,
        "not-closed-after-its-turn",
        talking(sessions=(RUNS, IDLE._replace(is_closing=True))),
        found(Ref("session", 4), SessionReleaseCode.STILL_OPEN),
    ),
]
