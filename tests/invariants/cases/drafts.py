"""Drafts without pages, and accepted drafts that the model does not confirm."""

from swarden.invariants.events import Launched, Proposed, Verified
from swarden.invariants.laws.content.drafts import (
    DraftCode,
    accepted_drafts_match_the_model,
    drafts_fit_their_allocation,
)
from swarden.invariants.view import LaunchView
from swarden.invariants.violation import Ref, found
from tests.invariants.builders import OVERLAPPED_LIMITS, UNITS_IN_FLIGHT, broken, during, records

DRAFTING = OVERLAPPED_LIMITS._replace(draft_len=2)
LAUNCHED, PROPOSED = Launched(7, ((1, 20, 21),)), Proposed(7, 1, (30, 31))
DRAFTED = {"launches": (LaunchView(7, ((1, 20, 21),), (UNITS_IN_FLIGHT,), drafts=((30, 31),)),)}
REQUEST = Ref("request", 1)

CASES = [
    broken(
        drafts_fit_their_allocation,
        "too-many",
        during(LAUNCHED, PROPOSED, records=records(allocated_len=24)),
        found(REQUEST, DraftCode.TOO_MANY, count=2, most=0),
    ),
    broken(
        drafts_fit_their_allocation,
        "beyond-allocated-pages",
        during(LAUNCHED, PROPOSED, limits=DRAFTING, records=records(allocated_len=22)),
        found(REQUEST, DraftCode.BEYOND_ALLOCATION, end=23, allocated_len=22),
    ),
    broken(
        accepted_drafts_match_the_model,
        "wrong-draft-accepted",
        during(LAUNCHED, PROPOSED, Verified(7, 1, 2, (30, 9, 9))),
        found(REQUEST, DraftCode.WRONG_DRAFT_ACCEPTED, accepted=2, drafts=(30, 31), sampled=(30, 9, 9)),
    ),
    broken(
        accepted_drafts_match_the_model,
        "draft-not-verified",
        during(LAUNCHED, PROPOSED, Verified(7, 1, 1, (30, 9))),
        found(REQUEST, DraftCode.NOT_ALL_VERIFIED, launch=7, sampled=2, drafts=2),
    ),
]
