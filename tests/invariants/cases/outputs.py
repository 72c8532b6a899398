"""Wrong tokens, tokens of invalid or partial results, and too many tokens."""

from dataclasses import replace

from swarden.invariants.events import Compared, Completed, Launched, TakenOver, Verified
from swarden.invariants.laws.content.outputs import (
    OutputCode,
    clients_get_only_computed_tokens,
    logits_match_uncached_model,
    outputs_match_reference,
    outputs_match_uncached_model,
    outputs_stay_within_max_new_tokens,
)
from swarden.invariants.reference import Reference
from swarden.invariants.view import RequestView
from swarden.invariants.violation import Found, Ref, found
from tests.invariants.builders import BEFORE, HEALTHY, broken, during, healthy, idle, in_flight, reference

LAUNCHED = Launched(7, ((1, 20, 21),))
REQUEST = Ref("request", 1)


def compared(*later, **changes):
    """A step that compares position 20 with the uncached model; without changes the result is correct."""
    token = reference(22).expectations[1].tokens[21]
    healthy_one = Compared(7, 1, 20, 21, 20, 3e-15, 1e-9, token, token)
    return during(LAUNCHED, healthy_one._replace(**changes), *later)


def with_wrong_token():
    """The reference of a client that got a wrong last token."""
    heard = reference(21)
    heard.streamed(1, [63 if reference(22).expectations[1].tokens[21] != 63 else 62])
    return heard


def taken_over(*tokens):
    """r1 is taken over from an engine that computed its prompt and its first token, which its client gets now."""
    before = replace(BEFORE, requests=(RequestView(1, "linked", 0, 18, 0, 9),))
    return replace(idle(TakenOver(1, 18, tokens), before=before), reference=reference(19))


def not_computed(num_new: int, num_computed: int) -> Found:
    return found(REQUEST, OutputCode.NOT_COMPUTED, num_new=num_new, num_computed=num_computed)


def wrong_token(code: OutputCode, token: int, want: int) -> Found:
    return found(REQUEST, code, position=21, token=token, want=want)


def wrong_logits(start: int, position: int, difference: float) -> Found:
    values = {"start": start, "end": 21, "position": position, "difference": difference, "tolerance": 1e-9}
    return found(REQUEST, OutputCode.WRONG_LOGITS, **values)


SAMPLED, LIKELIEST = with_wrong_token().expectations[1].tokens[21], reference(22).expectations[1].tokens[21]

COMPARED = compared()
UNPREDICTABLE = replace(HEALTHY, reference=Reference())

CASES = [
    broken(
        outputs_match_reference,
        "wrong-token",
        replace(HEALTHY, reference=with_wrong_token()),
        wrong_token(OutputCode.WRONG_TOKEN, SAMPLED, LIKELIEST),
    ),
    healthy(logits_match_uncached_model, compared(difference=1e-9), "difference-at-the-tolerance"),
    broken(
        logits_match_uncached_model,
        "difference-above-the-tolerance",
        compared(start=16, position=18, difference=0.25),
        wrong_logits(16, 18, 0.25),
    ),
    broken(
        outputs_match_uncached_model,
        "wrong-tokens-sampled-and-streamed",
        compared(token=1, likeliest=2),
        wrong_token(OutputCode.WRONG_TOKEN_SAMPLED, 1, 2),
        wrong_token(OutputCode.WRONG_TOKEN_STREAMED, LIKELIEST, 2),
    ),
    broken(
        clients_get_only_computed_tokens,
        "rejected-draft",
        replace(in_flight(Verified(7, 1, 0, (30, 9)), Completed(7)), reference=reference(23)),
        not_computed(2, 1),
    ),
    broken(
        clients_get_only_computed_tokens,
        "part-of-the-known-tokens",
        replace(in_flight(before={"requests": (RequestView(1, "running", 0, 18, 4, 9),)}), reference=reference(23)),
        found(REQUEST, OutputCode.COMPUTED_IN_PART, num_computed=21, num_known=22),
    ),
    broken(
        outputs_stay_within_max_new_tokens,
        "one-token-too-many",
        in_flight(before={"requests": (RequestView(1, "running", 0, 18, 3, 3),)}),
        found(REQUEST, OutputCode.TOO_LONG, num_outputs=4, asked=3),
    ),
]
