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
from tests.invariants.builders import AFTER, LIMITS, after, broken, during, healthy, pools


def arriving(prompt_len: int, max_new_tokens: int) -> Transition:
    known = AFTER.requests or ()
    return after(requests=(*known, RequestView(3, "waiting", 0, prompt_len, 0, max_new_tokens)))


def looking_ahead(*events, **parts) -> Transition:
    return during(*events, limits=LIMITS._replace(lookahead_len=4), **parts)


def cannot_run(reason: Impossible, prompt_len: int, max_new_tokens: int) -> Found:
    values = {"reason": reason, "prompt_len": prompt_len, "max_new_tokens": max_new_tokens}
    return found(Ref("request", 3), RejectionCode.CANNOT_RUN, **values)


CASES = [
    healthy(rejected_requests_cannot_run, during(Rejected(2, 36, 5, "row"), Rejected(3, 0, 1, "empty"))),
    healthy(rejected_requests_cannot_run, during(Rejected(2, 1, 1, "token 200", is_invalid=True)), "invalid"),
    broken(
        rejected_requests_cannot_run,
        "prompt-longer-than-the-windowed-pool",
        during(Rejected(2, 36, 4, "the prompt needs 10 swa pages of 8")),
        found(Ref("request", 2), RejectionCode.COULD_RUN, prompt_len=36, max_new_tokens=4),
    ),
    healthy(impossible_requests_are_rejected, arriving(36, 4)),
    broken(
        impossible_requests_are_rejected,
        "row-too-short",
        arriving(36, 5),
        cannot_run(Impossible.CONTEXT_TOO_LONG, 36, 5),
    ),
    broken(
        impossible_requests_are_rejected,
        "pool-too-small",
        after(
            requests=(RequestView(3, "waiting", 0, 36, 0, 1),),
            pools=pools("full", capacity=9),
        ),
        cannot_run(Impossible.POOL_TOO_SMALL, 36, 1),
    ),
    broken(
        impossible_requests_are_rejected,
        "empty-prompt",
        arriving(0, 5),
        cannot_run(Impossible.EMPTY_PROMPT, 0, 5),
    ),
    healthy(rejected_requests_cannot_run, looking_ahead(Rejected(2, 30, 7, "row")), "too-long-with-its-lookahead"),
    healthy(
        rejected_requests_cannot_run,
        during(Rejected(2, 35, 1, "spare"), limits=LIMITS._replace(spare_len=6)),
        "without-spare-positions",
    ),
    broken(
        impossible_requests_are_rejected,
        "queued-with-lookahead-beyond-the-row",
        looking_ahead(requests=(RequestView(3, "waiting", 0, 30, 0, 7),)),
        cannot_run(Impossible.CONTEXT_TOO_LONG, 30, 7),
    ),
]
