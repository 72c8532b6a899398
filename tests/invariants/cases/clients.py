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


def client_with(*events, stop=(), num_at_abort=None, sibling_at=None, after=AFTER):
    """r1 has three output tokens before the step and four after it; `stop` has the indices of its stop tokens, and
    the client aborted it after `num_at_abort` output tokens."""
    known = reference(22)
    expected = known.expectations[1]
    expected.stop = frozenset(expected.tokens[expected.prompt_len + index] for index in stop)
    expected.len_at_abort = None if num_at_abort is None else expected.prompt_len + num_at_abort
    if sibling_at is not None:
        expected.client = known.expectations[2].client = 1
        known.expectations[2].len_at_abort = sibling_at
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
NAMES_ABORTS = AFTER.limits._replace(names_aborts=True)
ENDED = replace(AFTER, requests=(AFTER.requests or ())[1:], limits=NAMES_ABORTS)

LAST = 3  # the index of the newest output token


def ended(reason, **client):
    return client_with(Finished(1, reason), after=ENDED, **client)


CASES = [
    healthy(aborted_requests_stop_decoding, client_with(num_at_abort=2), "one-pass-after-the-abort"),
    broken(
        aborted_requests_stop_decoding,
        "decoded-after-the-abort",
        client_with(num_at_abort=1),
        found(request_ref(1), ClientCode.DECODED_AFTER_ABORT, decoded=3, most=2),
    ),
    healthy(aborted_prompts_are_not_computed, client_with(launched(20))),
    healthy(aborted_prompts_are_not_computed, client_with(launched(20), num_at_abort=1), "aborted-after-an-output"),
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
    broken(
        aborted_prompts_are_not_computed,
        "prompt-computed-by-an-engine-that-schedules-ahead",
        client_with(launched(17), num_at_abort=0, after=SCHEDULES_AHEAD),
        found(request_ref(1), ClientCode.COMPUTED_AFTER_ABORT, launch=8, start=17, end=18),
    ),
    healthy(uncached_requests_insert_nothing, uncached(Owner("transfer", 1)), "to-a-transfer"),
    broken(
        uncached_requests_insert_nothing,
        "to-the-tree",
        uncached(Owner("tree", 3)),
        found(request_ref(1), ClientCode.CACHED_AGAINST_ITS_WISH, units=(Ref("page", 7, "full"),)),
    ),
    healthy(outputs_end_as_asked, ended(FinishReason.STOP, stop=(LAST,)), "ended-at-a-stop-token"),
    broken(
        outputs_end_as_asked,
        "not-ended-at-a-stop-token",
        client_with(stop=(LAST,)),
        found(request_ref(1), ClientCode.DECODED_AFTER_STOP, token=4, position=21),
    ),
    broken(
        outputs_end_as_asked,
        "stopped-without-a-stop-token",
        ended(FinishReason.STOP),
        found(request_ref(1), ClientCode.STOPPED_WITHOUT_STOP_TOKEN),
    ),
    broken(
        outputs_end_as_asked,
        "ended-before-its-length",
        ended(FinishReason.LENGTH),
        found(request_ref(1), ClientCode.ENDED_SHORT, num_outputs=4, asked=9),
    ),
    healthy(outputs_end_as_asked, ended(FinishReason.ABORT, num_at_abort=4), "aborted"),
    healthy(
        outputs_end_as_asked,
        client_with(Finished(1, FinishReason.ABORT), after=replace(AFTER, requests=(AFTER.requests or ())[1:])),
        "ended-by-a-sleep",
    ),
    healthy(outputs_end_as_asked, ended(FinishReason.TIMEOUT, num_at_abort=4), "timed-out"),
    healthy(outputs_end_as_asked, ended(FinishReason.STOP, num_at_abort=3, stop=[LAST]), "aborted-and-stopped"),
    healthy(outputs_end_as_asked, client_with(num_at_abort=3, stop=[LAST]), "aborted-and-decoded"),
    healthy(outputs_end_as_asked, ended(FinishReason.ABORT, sibling_at=4), "another-sequence-aborted"),
    broken(
        outputs_end_as_asked, "not-aborted", ended(FinishReason.ABORT), found(request_ref(1), ClientCode.NOT_ABORTED)
    ),
    broken(
        outputs_end_as_asked,
        "aborted-and-reported-as-stopped",
        ended(FinishReason.STOP, num_at_abort=3),
        found(request_ref(1), ClientCode.STOPPED_WITHOUT_STOP_TOKEN),
    ),
    broken(
        outputs_end_as_asked,
        "aborted-and-ended-before-its-length",
        ended(FinishReason.LENGTH, num_at_abort=3),
        found(request_ref(1), ClientCode.ENDED_SHORT, num_outputs=4, asked=9),
    ),
]
