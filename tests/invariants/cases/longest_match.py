"""Matches that are not the longest, or leave no token to compute."""

from swarden.invariants.contracts.longest_match import LongestMatchCode, matches_are_longest
from swarden.invariants.events import Matched
from swarden.invariants.transition import Transition
from swarden.invariants.violation import Ref, found
from tests.invariants.builders import OTHER_PROMPT, broken, idle

REQUEST = Ref("request", 2)


def match(key, length, pages, *earlier) -> Transition:
    return idle(*earlier, Matched(2, 0, key, length, pages))


CASES = [
    broken(
        matches_are_longest,
        "too-short",
        match((*OTHER_PROMPT, 7), 4, (5,)),
        found(REQUEST, LongestMatchCode.TOO_SHORT, length=4, usable=8),
    ),
    broken(
        matches_are_longest,
        "whole-key",
        match(OTHER_PROMPT, 8, (5, 6)),
        found(REQUEST, LongestMatchCode.WHOLE_KEY, length=8),
    ),
]
