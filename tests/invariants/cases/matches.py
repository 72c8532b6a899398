"""Matches of tokens that are not cached, or on other pages than the tree's."""

from swarden.invariants.events import Matched
from swarden.invariants.laws.content.matches import MatchCode, matches_are_valid
from swarden.invariants.transition import Transition
from swarden.invariants.violation import Found, Ref, found
from tests.invariants.builders import PROMPT, broken, idle


def match(key, length, pages, *, namespace=0) -> Transition:
    return idle(Matched(2, namespace, key, length, pages))


def not_cached(length: int) -> Found:
    return found(Ref("request", 2), MatchCode.NOT_USABLE, length=length)


CASES = [
    broken(matches_are_valid, "in-another-namespace", match(PROMPT, 16, (1, 2, 3, 4), namespace=1), not_cached(16)),
    broken(
        matches_are_valid,
        "other-pages",
        match(PROMPT, 16, (1, 2, 3, 9)),
        found(Ref("request", 2), MatchCode.OTHER_PAGES, pages=(1, 2, 3, 9), want=(1, 2, 3, 4)),
    ),
]
