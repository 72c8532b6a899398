"""Outputs that end at the wrong token, and aborted requests that are decoded further."""

from dataclasses import replace

from swarden.invariants.events import Finished, FinishReason, Given, Launched, Owner
from swarden.invariants.laws.lifecycle.clients import (
    ClientCode,
    aborted_prompts_are_not_computed,
    aborted_requests_stop_decoding,
    outputs_end_as_asked,
    uncached_requests_insert_nothing,
)
from swarden.invariants.violation import Ref, found, request_ref
from tests.invariants.builders import AFTER, HEALTHY, R1, broken, healthy, reference


def client_with(*events, stop=(), num_at_abort=None, after=AFTER):
    """r1 has three output tokens before the step and four after it; `stop` has the indices of its stop tokens, and
    the client aborted it after `num_at_abort` output tokens."""
    known = reference(22)
    expected = known.expectations[1]
    expected.stop = frozenset(expected.tokens[expected.prompt_len + index] for index in stop)
    expected.len_at_abort = None if num_at_abort is None else expected.prompt_len + num_at_abort
    return replace(HEALTHY, reference=known, events=events, after=after)


def launched(start):
    """A pass that computes one token of r1."""
    return Launched(8, ((1, start, start + 1),))


def uncached(owner):
    """A page of r1, which asks not to be cached, gets another owner."""
    change = client_with(Given("full", (7,), R1, owner))
    change.reference.expectations[1].is_uncached = True
    return change


SCHEDULES_AHEAD = replace(AFTER, limits=AFTER.limits._replace(decodes_after_abort=1))
LAST = 3  # the index of the newest output token
ENDED = replace(AFTER, requests=(AFTER.requests or ())[1:])

CASES = [
    healthy(aborted_requests_stop_decoding, client_with(num_at_abort=2), "one-pass-after-the-abort"),
    broken(
        aborted_requests_stop_decoding,
        "decoded-after-the-abort",
        client_with(num_at_abort=1),
        found(request_ref(1), ClientCode.DECODED_AFTER_ABORT, decoded=3, most=2),
    ),
    broken(
        aborted_prompts_are_not_computed,
        "aborted-before-its-first-output",
        client_with(launched(20), num_at_abort=0),
        found(request_ref(1), ClientCode.COMPUTED_AFTER_ABORT, launch=8, start=20, end=21),
    ),
    healthy(
        aborted_prompts_are_not_computed,
        client_with(launched(18), num_at_abort=0, after=SCHEDULES_AHEAD),
        "decoded-once-by-an-engine-that-schedules-ahead",
    ),
    broken(
        aborted_prompts_are_not_computed,
        "decoded-twice-by-an-engine-that-schedules-ahead",
        client_with(launched(19), num_at_abort=0, after=SCHEDULES_AHEAD),
        found(request_ref(1), ClientCode.COMPUTED_AFTER_ABORT, launch=8, start=19, end=20),
    ),
    healthy(uncached_requests_insert_nothing, uncached(Owner("transfer", 1)), "to-a-transfer"),
    broken(
        uncached_requests_insert_nothing,
        "to-the-tree",
        uncached(Owner("tree", 3)),
        found(request_ref(1), ClientCode.CACHED_AGAINST_ITS_WISH, units=(Ref("page", 7, "full"),)),
    ),
    broken(
        outputs_end_as_asked,
        "not-ended-at-a-stop-token",
        client_with(stop=(LAST,)),
        found(request_ref(1), ClientCode.DECODED_AFTER_STOP, token=4, position=21),
    ),
    broken(
        outputs_end_as_asked,
        "stopped-without-a-stop-token",
        client_with(Finished(1, FinishReason.STOP), after=ENDED),
        found(request_ref(1), ClientCode.STOPPED_WITHOUT_STOP_TOKEN),
    ),
    broken(
        outputs_end_as_asked,
        "ended-before-its-length",
        client_with(Finished(1, FinishReason.LENGTH), after=ENDED),
        found(request_ref(1), ClientCode.ENDED_SHORT, num_outputs=4, asked=9),
    ),
]
