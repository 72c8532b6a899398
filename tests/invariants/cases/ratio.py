"""A new-token ratio that learns the wrong thing, or nothing."""

from dataclasses import replace

from invariants.events import Admitted, Completed, Evicted, Finished, Launched, Retracted, TakenOver, TransferEnded
from invariants.limits import Estimates
from invariants.ratio import the_ratio_learns_from_what_happened
from invariants.transition import When
from invariants.view import RequestView
from tests.invariants.builders import BEFORE, LIMITS, broken, claims, healthy, idle

LEARNING = LIMITS._replace(ratio_floor=100_000, estimates=Estimates(4096, 700_000, 600))
RUNNING = tuple(RequestView(number, "running", 0, 6, 10 * number, 100) for number in (1, 2, 3, 4))
RETRACTED = Retracted(4, 40, (("swa", 1),))
DECODE = (Launched(7, ((1, 15, 16), (2, 25, 26))), Completed(7))
SHORT = Evicted((("swa", 2),), (("swa", 1),), (("swa", 0),))


def learning(*events, ratio, began=RUNNING, left=RUNNING, when=When.STEP):
    """r1 to r4 run, with 10, 20, 30 and 40 of 100 output tokens; the ratio is half a million before."""
    before = replace(BEFORE, requests=began, limits=LEARNING)
    after = replace(before, requests=left, claims=claims(new_token_ratio=ratio))
    return replace(idle(*events, before=before, after=after), when=when)


WAITING = tuple(request._replace(place="waiting") for request in RUNNING)
LINKED = tuple(request._replace(place="linked") for request in RUNNING)
COMING = (*RUNNING, RequestView(5, "linked", 0, 6, 0, 100))

CASES = [
    healthy(the_ratio_learns_from_what_happened, learning(*DECODE, ratio=499_000)),
    healthy(the_ratio_learns_from_what_happened, learning(RETRACTED, *DECODE, ratio=398_671), "120-of-301"),
    healthy(the_ratio_learns_from_what_happened, learning(ratio=700_000, left=WAITING), "idle"),
    healthy(the_ratio_learns_from_what_happened, learning(ratio=500_000, when=When.OP), "between-steps"),
    healthy(the_ratio_learns_from_what_happened, learning(ratio=500_000), "nobody-decodes"),
    healthy(
        the_ratio_learns_from_what_happened,
        learning(SHORT, *DECODE, ratio=500_000),
        "short-and-nobody-gave-way",
    ),
    *[
        healthy(
            the_ratio_learns_from_what_happened,
            learning(SHORT, TransferEnded(3, None), *DECODE, ratio=ratio),
            f"short-until-copies-had-come-{ratio}",
        )
        for ratio in (499_000, 500_000)
    ],
    healthy(
        the_ratio_learns_from_what_happened,
        learning(Admitted(1, 0, 6, (), ()), Launched(7, ((1, 0, 6),)), ratio=500_000),
        "prefill",
    ),
    healthy(
        the_ratio_learns_from_what_happened,
        learning(*DECODE, Finished(1, "abort"), ratio=499_000, left=()),
        "left-after-the-step",
    ),
    broken(
        the_ratio_learns_from_what_happened,
        "nothing-is-learnt",
        learning(RETRACTED, *DECODE, ratio=499_000),
        ("new-token ratio", "went from 500000 to 499000 millionths, want 398671"),
    ),
    broken(
        the_ratio_learns_from_what_happened,
        "a-decode-changes-nothing",
        learning(*DECODE, ratio=500_000),
        ("new-token ratio", "went from 500000 to 500000 millionths, want 499000"),
    ),
    broken(
        the_ratio_learns_from_what_happened,
        "not-begun-anew",
        learning(ratio=500_000, left=WAITING),
        ("new-token ratio", "went from 500000 to 500000 millionths, want 700000"),
    ),
    broken(
        the_ratio_learns_from_what_happened,
        "lowered-between-steps",
        learning(ratio=499_000, when=When.OP),
        ("new-token ratio", "went from 500000 to 499000 millionths, want 500000"),
    ),
    healthy(the_ratio_learns_from_what_happened, learning(ratio=700_000, left=LINKED), "all-are-with-another-engine"),
    broken(
        the_ratio_learns_from_what_happened,
        "not-begun-anew-while-all-are-with-another-engine",
        learning(ratio=500_000, left=LINKED),
        ("new-token ratio", "went from 500000 to 500000 millionths, want 700000"),
    ),
    healthy(
        the_ratio_learns_from_what_happened,
        learning(RETRACTED, *DECODE, ratio=398_671, began=COMING),
        "who-is-with-another-engine-has-shown-nothing",
    ),
    healthy(
        the_ratio_learns_from_what_happened,
        learning(TakenOver(5, 6, (9,)), RETRACTED, *DECODE, ratio=351_621, began=COMING),
        "141-of-401-with-who-was-taken-over",
    ),
    broken(
        the_ratio_learns_from_what_happened,
        "who-was-taken-over-is-forgotten",
        learning(TakenOver(5, 6, (9,)), RETRACTED, *DECODE, ratio=398_671, began=COMING),
        ("new-token ratio", "went from 500000 to 398671 millionths, want 351621"),
    ),
]
