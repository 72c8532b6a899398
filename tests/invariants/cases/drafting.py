"""Drafts behind a chunk, correct drafts that are rejected, and passes launched before drafts are verified."""

from swarden.invariants.contracts.drafting import (
    DraftingCode,
    drafts_are_judged_before_the_next_pass,
    drafts_follow_one_token,
    right_drafts_are_accepted,
)
from swarden.invariants.events import Completed, Launched, Verified
from swarden.invariants.violation import Ref, found
from tests.invariants.builders import broken, during, healthy, in_flight
from tests.invariants.cases.drafts import DRAFTED, LAUNCHED, PROPOSED

REQUEST, NEXT = Ref("request", 1), Launched(8, ((1, 21, 22),))
NOT_AWAITED = found(REQUEST, DraftingCode.VERDICT_NOT_AWAITED, launch=8, start=21, end=22, drafted_in=7)

CASES = [
    broken(
        drafts_follow_one_token,
        "behind-a-chunk",
        during(Launched(7, ((1, 16, 21),)), PROPOSED),
        found(REQUEST, DraftingCode.NOT_BEHIND_ONE_TOKEN, count=2, launch=7, start=16, end=21),
    ),
    broken(
        right_drafts_are_accepted,
        "correct-draft-rejected",
        during(LAUNCHED, PROPOSED, Verified(7, 1, 0, (30, 9, 9))),
        found(REQUEST, DraftingCode.RIGHT_DRAFT_REJECTED, accepted=0, drafts=(30, 31), sampled=(30, 9, 9)),
    ),
    healthy(drafts_are_judged_before_the_next_pass, in_flight(Completed(7), NEXT, before=DRAFTED)),
    broken(
        drafts_are_judged_before_the_next_pass,
        "launched-in-an-earlier-step",
        in_flight(NEXT, before=DRAFTED),
        NOT_AWAITED,
    ),
    broken(
        drafts_are_judged_before_the_next_pass, "launched-in-this-step", during(LAUNCHED, PROPOSED, NEXT), NOT_AWAITED
    ),
]
