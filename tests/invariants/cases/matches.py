"""Matches of tokens that are not cached, or on other pages than the tree's."""

from swarden.invariants.events import CopyEnded, Demoted, Matched, Removed, Split
from swarden.invariants.laws.content.matches import MatchCode, matches_are_valid
from swarden.invariants.transition import Transition
from swarden.invariants.violation import Found, Ref, found
from tests.invariants.builders import OTHER_PROMPT, PROMPT, broken, healthy, idle
from tests.invariants.host_builders import R2_PROMPT, not_copying, while_copying

INSIDE = (*PROMPT[:14], 7, 7, 7)


def match(key, length, pages, *, earlier=(), namespace=0) -> Transition:
    return idle(*earlier, Matched(2, namespace, key, length, pages))


def not_cached(length: int) -> Found:
    return found(Ref("request", 2), MatchCode.NOT_USABLE, length=length)


CASES = [
    healthy(matches_are_valid, match(PROMPT, 16, (1, 2, 3, 4))),
    healthy(matches_are_valid, match(OTHER_PROMPT, 4, (5,)), "shorter-than-possible"),
    healthy(matches_are_valid, match(PROMPT, 0, (), namespace=1), "no-match-in-another-namespace"),
    healthy(
        matches_are_valid,
        match(PROMPT, 16, (1, 2, 3, 4), earlier=(Split(2, 9, 4),)),
        "after-a-split",
    ),
    healthy(
        matches_are_valid,
        match(OTHER_PROMPT, 12, (5, 6, 7), earlier=(Removed(3, "full", True),)),
        "unpredictable-after-an-eviction",
    ),
    broken(matches_are_valid, "in-another-namespace", match(PROMPT, 16, (1, 2, 3, 4), namespace=1), not_cached(16)),
    broken(matches_are_valid, "through-a-tombstone", match(INSIDE, 12, (1, 2, 3)), not_cached(12)),
    broken(matches_are_valid, "beyond-the-cached-prefix", match(INSIDE, 16, (1, 2, 3, 4)), not_cached(16)),
    broken(
        matches_are_valid,
        "other-pages",
        match(PROMPT, 16, (1, 2, 3, 9)),
        found(Ref("request", 2), MatchCode.OTHER_PAGES, pages=(1, 2, 3, 9), want=(1, 2, 3, 4)),
    ),
    broken(
        matches_are_valid,
        "only-on-the-host",
        not_copying(Matched(2, 0, R2_PROMPT, 16, (5, 6, 0, 0))),
        not_cached(16),
    ),
    healthy(
        matches_are_valid,
        match(OTHER_PROMPT, 12, (5, 6, 7), earlier=(Demoted(3, "full", True),)),
        "unpredictable-after-a-demotion",
    ),
    healthy(
        matches_are_valid,
        while_copying(CopyEnded(2, None), Matched(2, 0, R2_PROMPT, 16, (5, 6, 11, 12))),
        "unpredictable-after-a-load",
    ),
    broken(
        matches_are_valid,
        "before-the-load-ended",
        while_copying(Matched(2, 0, R2_PROMPT, 16, (5, 6, 11, 12)), CopyEnded(2, None)),
        not_cached(16),
    ),
]
