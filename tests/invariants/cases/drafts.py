"""Drafts without room, drafts that count though the model says otherwise, and passes that go on from a guess."""

from invariants.drafts import (
    drafts_count_as_far_as_the_model_says_them,
    drafts_stay_in_their_room,
    nothing_goes_on_from_a_guess,
)
from invariants.events import Completed, Launched, Proposed, Retracted, Verified
from invariants.view import LaunchView
from tests.invariants.builders import OVERLAPPED, UNITS_IN_FLIGHT, broken, during, healthy, in_flight, records

GUESSING = OVERLAPPED._replace(draft_len=2)
LAUNCHED, GUESS = Launched(7, ((1, 20, 21),)), Proposed(7, 1, (30, 31))
BEHIND = Launched(8, ((1, 21, 22),))
GUESSED = {"launches": (LaunchView(7, ((1, 20, 21),), (UNITS_IN_FLIGHT,), drafts=((30, 31),)),)}
GIVEN_UP = {"launches": (GUESSED["launches"][0]._replace(given_up=(1,)),)}

CASES = [
    healthy(drafts_stay_in_their_room, during(LAUNCHED, GUESS, limits=GUESSING, records=records(allocated_len=23))),
    broken(
        drafts_stay_in_their_room,
        "nobody-was-to-guess",
        during(LAUNCHED, GUESS, records=records(allocated_len=24)),
        ("request r1", "has 2 drafts, at most 0 may be"),
    ),
    broken(
        drafts_stay_in_their_room,
        "behind-a-chunk",
        during(Launched(7, ((1, 16, 21),)), GUESS, limits=GUESSING, records=records(allocated_len=23)),
        ("request r1", "has 2 drafts in launch 7, which computes [16, 21) for it"),
    ),
    broken(
        drafts_stay_in_their_room,
        "beyond-its-pages",
        during(LAUNCHED, GUESS, limits=GUESSING, records=records(allocated_len=22)),
        ("request r1", "has drafts up to 23, with room up to 22"),
    ),
    healthy(drafts_count_as_far_as_the_model_says_them, during(LAUNCHED, GUESS, Verified(7, 1, 1, (30, 9, 9)))),
    healthy(
        drafts_count_as_far_as_the_model_says_them,
        in_flight(Verified(7, 1, 2, (30, 31, 9)), before=GUESSED),
        "all-of-a-pass-that-was-launched-before",
    ),
    broken(
        drafts_count_as_far_as_the_model_says_them,
        "one-too-many",
        during(LAUNCHED, GUESS, Verified(7, 1, 2, (30, 9, 9))),
        ("request r1", "2 of the drafts [30, 31] count, the model said [30, 9, 9]"),
    ),
    broken(
        drafts_count_as_far_as_the_model_says_them,
        "one-too-few",
        during(LAUNCHED, GUESS, Verified(7, 1, 0, (30, 9, 9))),
        ("request r1", "0 of the drafts [30, 31] count, the model said [30, 9, 9]"),
    ),
    broken(
        drafts_count_as_far_as_the_model_says_them,
        "one-was-not-judged",
        during(LAUNCHED, GUESS, Verified(7, 1, 1, (30, 9))),
        ("request r1", "2 tokens were said to 2 drafts in launch 7"),
    ),
    healthy(nothing_goes_on_from_a_guess, in_flight(Completed(7), BEHIND, before=GUESSED)),
    healthy(nothing_goes_on_from_a_guess, in_flight(BEHIND), "nobody-guessed"),
    healthy(nothing_goes_on_from_a_guess, in_flight(BEHIND, before=GIVEN_UP), "it-began-anew-before"),
    healthy(nothing_goes_on_from_a_guess, in_flight(Retracted(1, 3, ()), BEHIND, before=GUESSED), "it-begins-anew"),
    broken(
        nothing_goes_on_from_a_guess,
        "launched-before",
        in_flight(BEHIND, before=GUESSED),
        ("request r1", "launch 8 computes [21, 22), yet its drafts in launch 7 are not judged"),
    ),
    broken(
        nothing_goes_on_from_a_guess,
        "launched-just-now",
        during(LAUNCHED, GUESS, BEHIND),
        ("request r1", "launch 8 computes [21, 22), yet its drafts in launch 7 are not judged"),
    ),
]
