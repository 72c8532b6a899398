"""Bugs of streaming sessions."""

from swarden.harness.core.mutant import Hunk, Mutants

MUTANTS = Mutants()
bug = MUTANTS.bug

SESSION = "swarden.engine_under_test.sessions.controller:Session"
SESSIONS = "swarden.engine_under_test.sessions.controller:Sessions"
LENGTHS = "record.committed_len = record.launched_len = record.allocated_len = length"

bug(
    "B61",
    "sglang pull 22862: the pages behind the last token were lost when the next turn took its own, some every turn",
    at=f"{SESSIONS}._cut",
    healthy="ledgers.free(handles, owner=record.owner, cause=FreeCause.CUT, after=record.last_launch, lacks=lacks)",
    broken="pass",
    caught_by=("unit_has_one_owner", "drained_engine_is_empty"),
)

bug(
    "B63",
    "sglang pull 22900: a trim left the frontier beyond the kept length, and the pages between were never freed",
    at=f"{SESSION}.kept_len",
    healthy="self.record.protected_len <= end and self.record.can_continue(end, pools)",
    broken="self.record.protected_len <= end",
    caught_by=(
        "slots_hold_their_prefix",
        "outputs_match_reference",
        "frontiers_spare_the_window",
        "units_in_flight_are_pinned",
        "AccountingError",
    ),
)

bug(
    "B64",
    "sglang pull 22273: a turn that was too long was aborted, and its one token replaced the session's KV",
    Hunk(
        f"{SESSIONS}.end_turn",
        "session.turn = 0",
        "session.turn = 0\n        if request.finish_reason == 'abort':\n"
        "            self._release(session, FreeCause.CLOSED)",
    ),
    Hunk(f"{SESSIONS}._release", "self._notice(GivenUp(session.id, cause))", "pass"),
    caught_by=("idle_sessions_keep_their_kv",),
)

bug(
    "B65",
    "sglang pulls 22213 and 22753: a session and the turn that borrowed its KV were both counted",
    at=f"{SESSIONS}.lend",
    healthy="session.record, session.tokens = None, []",
    broken="pass",
    caught_by=(
        "kept_records_match_their_sessions",
        "idle_sessions_keep_only_written_kv",
        "receipts_match_records",
        "unit_has_one_owner",
    ),
)

bug(
    "B67",
    "sglang pull 28754: the committed length exceeded the allocated one, so the next page belonged to another request",
    at=f"{SESSIONS}._cut",
    healthy=LENGTHS,
    broken="record.committed_len = record.launched_len = length + 1\n    record.allocated_len = length",
    caught_by=(
        "cursors_are_ordered",
        "kept_records_match_their_sessions",
        "idle_sessions_keep_only_written_kv",
        "turns_continue_on_kept_pages",
    ),
)

bug(
    "B69",
    "sglang issues 27024 and 27025: idle sessions held pages without limit, until no request could continue",
    Hunk(f"{SESSIONS}.release_oldest", "if first is not None:", "return False\n    if first is not None:"),
    Hunk(f"{SESSIONS}._exceeds_share", "return any(", "return False and any("),
    caught_by=("work_makes_progress", "oom_abort_only_if_alone"),
)

bug(
    "S150",
    "a turn begins while another one of its session runs, and takes its place",
    at=f"{SESSIONS}.why_refused",
    healthy="if session.turn else None",
    broken="if False else None",
    caught_by=("session_has_one_turn",),
)

bug(
    "S151",
    "a session keeps the pages that a turn had allocated beyond its last token, where nothing is written",
    at=f"{SESSIONS}.keep",
    healthy="self._cut(record, record.committed_len)",
    broken="pass",
    caught_by=("kept_records_match_their_sessions", "idle_sessions_keep_only_written_kv"),
)

bug(
    "S152",
    "a turn continues one token beyond the session's tokens, whatever its prompt is: on slots never written",
    at=f"{SESSION}.kept_len",
    healthy="length = common_len(prompt[:-1], self.tokens)",
    broken="length = min(len(prompt) - 1, len(self.tokens) + 1)",
    caught_by=("turns_continue_on_kept_pages", "slots_hold_their_prefix", "AssertionError"),
)

bug(
    "S153",
    "sglang pull 21875: a session was closed while its turn ran, and the turn could not return its KV",
    at=f"{SESSIONS}.close",
    healthy="if session is not None and session.turn:",
    broken="if session is None:",
    caught_by=("session_outlives_its_turn", "closing_sessions_close_after_their_turn", "session_has_one_turn"),
)

bug(
    "S154",
    "a session that keeps KV counts as busy, so all its later turns are refused",
    at=f"{SESSIONS}.why_refused",
    healthy="if session.turn else None",
    broken="if session.turn or session.record else None",
    caught_by=("turns_are_refused_only_by_closed_or_busy_sessions",),
)

bug(
    "S238",
    "a refused turn restarts the idle time of its session, which a client with bad requests keeps open",
    at="swarden.engine_under_test.engine:Engine.submit",
    healthy="request = self._new_request(",
    broken="if session in sessions.by_id:\n        sessions.by_id[session].used_ms = self._clock.now_ms()\n"
    "    request = self._new_request(",
    caught_by=("idle_sessions_close_in_time",),
)

bug(
    "S240",
    "found here by a law: the idle time began with the last step before a turn was aborted, not with its abort",
    at="swarden.engine_under_test.engine:Engine.abort",
    healthy="session.used_ms = self._clock.now_ms()",
    broken="pass",
    caught_by=("idle_sessions_close_in_time",),
)
