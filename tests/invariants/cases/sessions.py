"""Sessions with two turns or a turn in no queue, and sessions that keep the wrong KV."""

from dataclasses import replace
from typing import Any

from swarden.invariants.events import Finished, FinishReason, Kept, Lent, Owner, TurnRefused
from swarden.invariants.laws.lifecycle.sessions import (
    SessionCode,
    idle_sessions_keep_their_kv,
    kept_records_match_their_sessions,
    session_has_one_turn,
    session_keeps_only_delivered_tokens,
    session_outlives_its_turn,
    turns_are_refused_only_by_closed_or_busy_sessions,
    turns_continue_on_kept_pages,
)
from swarden.invariants.transition import Transition
from swarden.invariants.view import RecordView, SessionView
from swarden.invariants.violation import Ref, found, request_ref
from tests.invariants.builders import AFTER, BEFORE, broken, healthy, idle

S4 = Owner("session", 4)
S3_REF, S4_REF = Ref("session", 3), Ref("session", 4)
RUNS, IDLE = SessionView(3, 0, 1, 0, False), SessionView(4, 0, 0, 8, False)
KEPT = RecordView(S4, 0, 8, 8, 8, 8, (0, 0), ((5, 6), (3, 4)), (), receipt=2, node=3)
RUNNING, WAITING = (request._replace(session=3) if request.id == 1 else request for request in AFTER.requests or ())
RECORDS = (*(AFTER.records or ()), KEPT)


def with_sessions(*events: Any, before: dict[str, Any] | None = None, **after: Any) -> Transition:
    """By default r1 is the turn of session 3, and session 4 keeps eight tokens, both before and after."""
    usual: dict[str, Any] = {"sessions": (RUNS, IDLE), "requests": (RUNNING, WAITING), "records": RECORDS}
    return idle(
        *events,
        before=replace(BEFORE, **usual | {"records": (*(BEFORE.records or ()), KEPT)} | (before or {})),
        after=replace(AFTER, **usual | after),
    )


NOW_LENT: dict[str, Any] = {"sessions": (RUNS, IDLE._replace(turn=2, kept_len=0)), "records": AFTER.records}

CASES = [
    healthy(
        session_has_one_turn,
        with_sessions(Finished(9, FinishReason.ABORT), sessions=(RUNS, IDLE._replace(turn=9))),
        "turn-ended-in-this-step",
    ),
    broken(
        session_has_one_turn,
        "two-turns",
        with_sessions(requests=(RUNNING, WAITING._replace(session=3))),
        found(request_ref(2), SessionCode.SECOND_TURN, session=S3_REF, turn=request_ref(1)),
    ),
    broken(
        session_has_one_turn,
        "turn-of-an-idle-session",
        with_sessions(requests=(RUNNING, WAITING._replace(session=4))),
        found(request_ref(2), SessionCode.TURN_OF_IDLE_SESSION, session=S4_REF),
    ),
    broken(
        session_has_one_turn,
        "session-is-closed",
        with_sessions(sessions=(IDLE,)),
        found(request_ref(1), SessionCode.TURN_OF_CLOSED_SESSION, session=S3_REF),
    ),
    broken(
        session_has_one_turn,
        "turn-in-another-namespace",
        with_sessions(sessions=(RUNS._replace(namespace=1), IDLE)),
        found(request_ref(1), SessionCode.OTHER_NAMESPACE, session=S3_REF, namespace=0, session_namespace=1),
    ),
    broken(
        session_has_one_turn,
        "turn-in-no-queue",
        with_sessions(sessions=(RUNS, IDLE._replace(turn=9))),
        found(S4_REF, SessionCode.TURN_LOST, turn=request_ref(9)),
    ),
    broken(
        kept_records_match_their_sessions,
        "session-is-closed",
        with_sessions(sessions=(RUNS,)),
        found(S4_REF, SessionCode.RECORD_OF_CLOSED_SESSION, kept_len=8),
    ),
    broken(
        kept_records_match_their_sessions,
        "record-beside-the-turn",
        with_sessions(sessions=(RUNS._replace(turn=0), IDLE._replace(turn=1))),
        found(S4_REF, SessionCode.RECORD_BESIDE_TURN, turn=request_ref(1)),
    ),
    broken(
        kept_records_match_their_sessions,
        "other-length",
        with_sessions(sessions=(RUNS, IDLE._replace(kept_len=5))),
        found(S4_REF, SessionCode.KEPT_LEN_DIFFERS, noted_len=5, kept_len=8),
    ),
    healthy(
        turns_continue_on_kept_pages,
        with_sessions(Kept(4, 9, 12), Lent(4, 2, 12, (9, 8, 7)), **NOW_LENT),
        "kept-in-the-step",
    ),
    broken(
        turns_continue_on_kept_pages,
        "longer-than-kept",
        with_sessions(Lent(4, 2, 9, (5, 6)), **NOW_LENT),
        found(request_ref(2), SessionCode.CONTINUED_TOO_FAR, session=S4_REF, length=9, kept_len=8),
    ),
    broken(
        turns_continue_on_kept_pages,
        "on-other-pages",
        with_sessions(Lent(4, 2, 8, (5, 7)), **NOW_LENT),
        found(request_ref(2), SessionCode.CONTINUED_ON_OTHER_PAGES, session=S4_REF, pages=(5, 7), kept=(5, 6)),
    ),
    broken(
        session_outlives_its_turn,
        "closed-during-its-turn",
        with_sessions(sessions=(IDLE,)),
        found(S3_REF, SessionCode.CLOSED_DURING_TURN, turn=request_ref(1)),
    ),
    broken(
        turns_are_refused_only_by_closed_or_busy_sessions,
        "idle-session",
        with_sessions(TurnRefused(4, 7)),
        found(request_ref(7), SessionCode.REFUSED_WHILE_IDLE, session=S4_REF),
    ),
    broken(
        session_keeps_only_delivered_tokens,
        "more-than-delivered",
        with_sessions(Kept(4, 1, 23)),
        found(S4_REF, SessionCode.KEPT_TOO_MUCH, kept_len=23, delivered=22),
    ),
    healthy(
        idle_sessions_keep_their_kv,
        with_sessions(sessions=(RUNS, IDLE._replace(turn=2, kept_len=7))),
        "cut-to-its-waiting-turn",
    ),
    broken(
        idle_sessions_keep_their_kv,
        "changed-without-an-event",
        with_sessions(**NOW_LENT),
        found(S4_REF, SessionCode.CHANGED_UNREPORTED, was_len=8, kept_len=0),
    ),
]
