"""Requests that are rejected without need, and impossible requests that are queued."""

from swarden.invariants.contracts.rejection import (
    Impossible,
    RejectionCode,
    impossible_requests_are_rejected,
    rejected_requests_cannot_run,
)
from swarden.invariants.events import Rejected
from swarden.invariants.transition import Transition
from swarden.invariants.view import RequestView
from swarden.invariants.violation import Found, Ref, found
from tests.invariants.builders import AFTER, LIMITS, after, broken, during, healthy


def arriving(prompt_len: int, max_new_tokens: int) -> Transition:
    known = AFTER.requests or ()
    return after(requests=(*known, RequestView(3, "waiting", 0, prompt_len, 0, max_new_tokens)))


def looking_ahead(*events, **parts) -> Transition:
    return during(*events, limits=LIMITS._replace(lookahead_len=4), **parts)


def cannot_run(reason: Impossible, prompt_len: int, max_new_tokens: int) -> Found:
    values = {"reason": reason, "prompt_len": prompt_len, "max_new_tokens": max_new_tokens}
    return found(Ref("request", 3), RejectionCode.CANNOT_RUN, **values)


CASES = [
    broken(
        rejected_requests_cannot_run,
        "prompt-longer-than-the-windowed-pool",
        during(Rejected(2, 36, 4, "the prompt needs 10 swa pages of 8")),
        found(Ref("request", 2), RejectionCode.COULD_RUN, prompt_len=36, max_new_tokens=4),
    ),
    broken(
        impossible_requests_are_rejected,
        "row-too-short",
        arriving(36, 5),
        cannot_run(Impossible.CONTEXT_TOO_LONG, 36, 5),
    ),
    healthy(rejected_requests_cannot_run, looking_ahead(Rejected(2, 30, 7, "row")), "too-long-with-its-lookahead"),
]
