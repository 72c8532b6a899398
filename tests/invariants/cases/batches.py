"""Passes with wrong entries, and committed lengths that differ from the valid results."""

from swarden.invariants.events import Admitted, Completed, Failed, Launched, Loaded, TakenOver, Verified
from swarden.invariants.laws.lifecycle.batches import (
    BatchCode,
    committed_tokens_have_landed,
    passes_compute_each_request_once,
    passes_compute_unfinished_requests,
    requests_resume_where_they_stopped,
)
from swarden.invariants.transition import Transition
from swarden.invariants.violation import Found, Ref, found
from tests.invariants.builders import broken, during, healthy, idle, in_flight
from tests.invariants.cases.handover import R2_RESERVED, R2_RUNS

LAUNCH, REQUEST = Ref("launch", 7), Ref("request", 1)
VERIFIED = Verified(7, 1, 1, (30, 9))
ADMITTED = Admitted(2, 0, 5, (("full", 2),), (("full", 2),))
LOADED = Loaded(2, 16, (5, 6, 11, 12))


def taken_over(*events, length=22) -> Transition:
    """All 22 tokens of r2 have arrived from another engine; the event reports `length` of them."""
    return idle(TakenOver(2, length, (3,)), *events, before=R2_RESERVED, after=R2_RUNS)


def launched(*entries) -> Transition:
    return during(Launched(7, entries))


def resumed(request: int, start: int, end: int, *, launched_len: int) -> Found:
    values = {"launch": 7, "start": start, "end": end, "launched_len": launched_len}
    return found(Ref("request", request), BatchCode.RESUMED_ELSEWHERE, **values)


def committed(committed_len: int, want: int) -> Found:
    return found(Ref("request", 1), BatchCode.COMMITTED_OTHER_LEN, committed_len=committed_len, want=want)


CASES = [
    broken(
        passes_compute_unfinished_requests,
        "ended-before",
        during(Launched(7, ((1, 21, 22), (9, 0, 4)))),
        found(Ref("request", 9), BatchCode.HAS_ENDED, launch=7, start=0, end=4),
    ),
    broken(
        passes_compute_each_request_once,
        "no-tokens",
        launched((1, 20, 20)),
        found(REQUEST, BatchCode.NO_TOKENS, launch=7, start=20, end=20),
    ),
    broken(
        passes_compute_each_request_once,
        "request-twice-in-a-pass",
        launched((1, 20, 21), (1, 21, 22)),
        found(LAUNCH, BatchCode.REQUEST_TWICE, requests=(REQUEST,)),
    ),
    broken(
        passes_compute_each_request_once,
        "too-many-requests",
        launched((1, 0, 8), (2, 0, 5), (3, 4, 5)),
        found(LAUNCH, BatchCode.TOO_MANY_REQUESTS, count=3, most=2),
    ),
    healthy(
        requests_resume_where_they_stopped,
        during(ADMITTED, Launched(7, ((2, 0, 5), (1, 20, 21))), Launched(8, ((2, 5, 6),))),
        "admitted-and-in-two-passes",
    ),
    broken(
        requests_resume_where_they_stopped, "skips-tokens", launched((1, 21, 22)), resumed(1, 21, 22, launched_len=20)
    ),
    broken(
        requests_resume_where_they_stopped,
        "not-from-the-admitted-start",
        during(ADMITTED, Launched(7, ((2, 1, 5),))),
        found(Ref("request", 2), BatchCode.STARTED_ELSEWHERE, launch=7, start=1, end=5, admitted_at=0),
    ),
    broken(
        requests_resume_where_they_stopped,
        "never-admitted",
        launched((2, 0, 5)),
        found(Ref("request", 2), BatchCode.NOT_ADMITTED, launch=7, start=0, end=5),
    ),
    healthy(
        requests_resume_where_they_stopped,
        in_flight(Failed(7, "lost"), Completed(7), Admitted(1, 16, 22, (), ()), Launched(8, ((1, 16, 22),))),
        "failed-and-admitted-again",
    ),
    healthy(
        requests_resume_where_they_stopped,
        in_flight(VERIFIED, Completed(7), Launched(8, ((1, 22, 23),))),
        "behind-an-accepted-draft",
    ),
    broken(
        committed_tokens_have_landed,
        "not-committed",
        during(Launched(7, ((1, 20, 22),)), Completed(7)),
        committed(21, 22),
    ),
    broken(
        committed_tokens_have_landed,
        "result-of-a-failed-pass-committed",
        in_flight(Failed(7, "lost"), Completed(7), Admitted(1, 16, 21, (), ())),
        committed(21, 16),
    ),
]
