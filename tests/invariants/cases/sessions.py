"""Sessions with two turns or a turn in no queue, and what they keep that is not theirs."""

from dataclasses import replace
from typing import Any

from invariants.events import Finished, GivenUp, Kept, Lent, TurnRefused
from invariants.sessions import (
    a_session_has_one_turn,
    a_session_keeps_no_more_than_was_said,
    closing_waits_for_the_turn,
    idle_sessions_keep_what_is_written,
    only_a_turn_too_many_is_refused,
    sessions_change_only_by_their_turns,
    turns_go_on_from_what_is_kept,
)
from invariants.transition import Transition
from invariants.view import Owner, RecordView, SessionView
from tests.invariants.builders import AFTER, BEFORE, broken, healthy, idle

S4 = Owner("session", 4)
RUNS, IDLE = SessionView(3, 0, 1, 0, False), SessionView(4, 0, 0, 8, False)
KEPT = RecordView(S4, 0, 8, 8, 8, 8, 0, ((5, 6), (3, 4)), (), receipt=2, node=3)
RUNNING, WAITING = (request._replace(session=3) if request.id == 1 else request for request in AFTER.requests or ())
RECORDS = (*(AFTER.records or ()), KEPT)


def talking(*events: Any, before: dict[str, Any] | None = None, **after: Any) -> Transition:
    """r1 is the turn of session 3, and session 4 keeps eight tokens; both before and after, unless told otherwise."""
    usual: dict[str, Any] = {"sessions": (RUNS, IDLE), "requests": (RUNNING, WAITING), "records": RECORDS}
    return idle(
        *events,
        before=replace(BEFORE, **usual | {"records": (*(BEFORE.records or ()), KEPT)} | (before or {})),
        after=replace(AFTER, **usual | after),
    )


ONE_PAGE = Lent(4, 2, 4, (5,))
NOW_LENT: dict[str, Any] = {"sessions": (RUNS, IDLE._replace(turn=2, kept_len=0)), "records": AFTER.records}

CASES = [
    healthy(a_session_has_one_turn, talking()),
    broken(
        a_session_has_one_turn,
        "two",
        talking(requests=(RUNNING, WAITING._replace(session=3))),
        ("request r1", "is running as a turn of session 3, yet request r1 has it"),
        ("request r2", "is waiting as a turn of session 3, yet request r1 has it"),
    ),
    broken(
        a_session_has_one_turn,
        "of-nobody",
        talking(requests=(RUNNING, WAITING._replace(session=4))),
        ("request r2", "is waiting as a turn of session 4, yet nobody has it"),
    ),
    broken(
        a_session_has_one_turn,
        "of-a-closed-one",
        talking(sessions=(IDLE,)),
        ("request r1", "is running as a turn of session 3, which is closed"),
    ),
    broken(
        a_session_has_one_turn,
        "in-another-namespace",
        talking(sessions=(RUNS._replace(namespace=1), IDLE)),
        ("request r1", "is in namespace 0, its session is in 1"),
    ),
    broken(
        a_session_has_one_turn,
        "in-no-queue",
        talking(sessions=(RUNS, IDLE._replace(turn=9))),
        ("session 4", "its turn is request r9, which is in no queue"),
    ),
    healthy(
        a_session_has_one_turn, talking(Finished(9, "abort"), sessions=(RUNS, IDLE._replace(turn=9))), "ended-just-now"
    ),
    healthy(idle_sessions_keep_what_is_written, talking()),
    broken(
        idle_sessions_keep_what_is_written,
        "not-open",
        talking(sessions=(RUNS,)),
        ("session s4", "keeps 8 tokens, yet it is not open"),
    ),
    broken(
        idle_sessions_keep_what_is_written,
        "beside-its-turn",
        talking(sessions=(RUNS._replace(turn=0), IDLE._replace(turn=1))),
        ("session s4", "keeps 8 tokens beside its turn request r1"),
    ),
    broken(
        idle_sessions_keep_what_is_written,
        "with-a-row",
        talking(records=(RECORDS[0], KEPT._replace(row=2))),
        ("session s4", "has row 2 without a turn"),
    ),
    broken(
        idle_sessions_keep_what_is_written,
        "with-room",
        talking(records=(RECORDS[0], KEPT._replace(allocated_len=12))),
        ("session s4", "keeps 8 tokens with launched_len 8, allocated_len 12"),
    ),
    broken(
        idle_sessions_keep_what_is_written,
        "not-what-it-noted",
        talking(sessions=(RUNS, IDLE._replace(kept_len=5))),
        ("session 4", "has noted 5 tokens, and keeps 8"),
    ),
    healthy(turns_go_on_from_what_is_kept, talking(ONE_PAGE, **NOW_LENT)),
    healthy(
        turns_go_on_from_what_is_kept,
        talking(Kept(4, 9, 12), Lent(4, 2, 12, (9, 8, 7)), **NOW_LENT),
        "kept-in-the-step",
    ),
    broken(
        turns_go_on_from_what_is_kept,
        "beyond",
        talking(Lent(4, 2, 9, (5, 6)), **NOW_LENT),
        ("request r2", "goes on from session 4, at 9, yet it kept 8 tokens"),
    ),
    broken(
        turns_go_on_from_what_is_kept,
        "on-others",
        talking(Lent(4, 2, 8, (5, 7)), **NOW_LENT),
        ("request r2", "goes on from session 4, on pages [5, 7], yet it kept [5, 6]"),
    ),
    healthy(closing_waits_for_the_turn, talking(sessions=(RUNS._replace(is_closing=True), IDLE))),
    broken(
        closing_waits_for_the_turn,
        "too-early",
        talking(sessions=(IDLE,)),
        ("session 3", "is closed, yet its turn request r1 goes on"),
    ),
    broken(
        closing_waits_for_the_turn,
        "too-late",
        talking(sessions=(RUNS, IDLE._replace(is_closing=True))),
        ("session 4", "is to be closed, has no turn, and is still open"),
    ),
    healthy(only_a_turn_too_many_is_refused, talking(TurnRefused(3, 7))),
    healthy(only_a_turn_too_many_is_refused, talking(TurnRefused(9, 7)), "of-a-closed-one"),
    broken(
        only_a_turn_too_many_is_refused,
        "for-nothing",
        talking(TurnRefused(4, 7)),
        ("request r7", "is refused, yet nobody has the turn of session 4"),
    ),
    healthy(a_session_keeps_no_more_than_was_said, talking(Kept(4, 1, 22))),
    broken(
        a_session_keeps_no_more_than_was_said,
        "what-was-computed-beyond-the-end",
        talking(Kept(4, 1, 23)),
        ("session 4", "keeps 23 tokens, 22 were said"),
    ),
    healthy(sessions_change_only_by_their_turns, talking(GivenUp(4, "closed"), **NOW_LENT)),
    broken(
        sessions_change_only_by_their_turns,
        "untold",
        talking(**NOW_LENT),
        ("session 4", "kept 8 tokens, keeps 0, and nothing was told"),
    ),
]
