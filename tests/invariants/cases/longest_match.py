"""Matches that are not the longest, or leave no token to compute."""

from swarden.invariants.contracts.longest_match import LongestMatchCode, matches_are_longest
from swarden.invariants.events import Matched, Removed
from swarden.invariants.transition import Transition
from swarden.invariants.violation import Ref, found
from tests.invariants.builders import OTHER_PROMPT, PROMPT, broken, healthy, idle
from tests.invariants.host_builders import R2_PROMPT, not_copying

REQUEST = Ref("request", 2)


def match(key, length, pages, *earlier) -> Transition:
    return idle(*earlier, Matched(2, 0, key, length, pages))


CASES = [
    healthy(matches_are_longest, match(PROMPT, 16, (1, 2, 3, 4))),
    healthy(matches_are_longest, match(OTHER_PROMPT, 4, (5,)), "one-token-left-to-compute"),
    healthy(matches_are_longest, match((*PROMPT[:12], 7), 0, ()), "window-reaches-into-a-tombstone"),
    healthy(matches_are_longest, not_copying(Matched(2, 0, R2_PROMPT, 8, (5, 6))), "rest-on-the-host"),
    healthy(
        matches_are_longest,
        match(OTHER_PROMPT, 0, (), Removed(3, "full", True)),
        "unpredictable-after-an-eviction",
    ),
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
