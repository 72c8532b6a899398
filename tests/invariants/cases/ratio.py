"""New-token ratios that change in the wrong way, or not at all."""

from dataclasses import replace

from swarden.invariants.contracts.ratio import RatioCode, new_token_ratio_follows_retractions
from swarden.invariants.events import Completed, CopyEnded, Evicted, Finished, Launched, Retracted, TakenOver
from swarden.invariants.limits import Estimates
from swarden.invariants.transition import Transition, When
from swarden.invariants.view import RequestView
from swarden.invariants.violation import Found, Ref, found
from tests.invariants.builders import BEFORE, LIMITS, broken, counters, healthy, idle

RATIO_LIMITS = LIMITS._replace(ratio_floor=100_000, estimates=Estimates(4096, 700_000, 600))
RUNNING = tuple(RequestView(number, "running", 0, 6, 10 * number, 100) for number in (1, 2, 3, 4))
RETRACTED = Retracted(4, 40, (("swa", 1),))
DECODE = (Launched(7, ((1, 15, 16), (2, 25, 26))), Completed(7))
SHORT = Evicted((("swa", 2),), (("swa", 1),), (("swa", 0),))


def four_running(*events, ratio, began=RUNNING, left=RUNNING, when=When.STEP) -> Transition:
    """r1 to r4 run, with 10, 20, 30 and 40 of 100 output tokens; the ratio is 500,000 millionths before."""
    before = replace(BEFORE, requests=began, limits=RATIO_LIMITS)
    after = replace(before, requests=left, counters=counters(new_token_ratio=ratio))
    return replace(idle(*events, before=before, after=after), when=when)


WAITING = tuple(request._replace(place="waiting") for request in RUNNING)
LINKED = tuple(request._replace(place="linked") for request in RUNNING)
R5_TAKEN_OVER = (*RUNNING, RequestView(5, "linked", 0, 6, 0, 100))


def moved(after: int, want: int) -> Found:
    """The violation of a ratio of 500,000 before, in millionths."""
    return found(Ref("new-token ratio"), RatioCode.OTHER_THAN_FORETOLD, want=(want,), before=500_000, after=after)


CASES = [
    *[
        healthy(
            new_token_ratio_follows_retractions,
            four_running(SHORT, CopyEnded(3, None), *DECODE, ratio=ratio),
            f"short-until-copies-landed-{ratio}",
        )
        for ratio in (499_000, 500_000)
    ],
    healthy(
        new_token_ratio_follows_retractions,
        four_running(*DECODE, Finished(1, "abort"), ratio=499_000, left=()),
        "aborted-after-the-step",
    ),
    broken(
        new_token_ratio_follows_retractions,
        "not-raised-by-a-retraction",
        four_running(RETRACTED, *DECODE, ratio=499_000),
        moved(499000, 398671),
    ),
    broken(
        new_token_ratio_follows_retractions,
        "not-lowered-by-a-decode",
        four_running(*DECODE, ratio=500_000),
        moved(500000, 499000),
    ),
    broken(
        new_token_ratio_follows_retractions,
        "transferred-request-not-counted",
        four_running(TakenOver(5, 6, (9,)), RETRACTED, *DECODE, ratio=398_671, began=R5_TAKEN_OVER),
        moved(398671, 351621),
    ),
]
