"""Matches that are not the longest."""

from invariants.events import Demoted, Matched, Removed, Split, TransferEnded
from invariants.matches import matches_are_the_longest_valid
from tests.invariants.builders import OTHER_PROMPT, PROMPT, broken, healthy, idle
from tests.invariants.host_builders import ASKED, on_the_shelf, while_copying


def match(key, length, pages, *, earlier=(), namespace=0):
    return idle(*earlier, Matched(2, namespace, key, length, pages))


INSIDE = (*PROMPT[:14], 7, 7, 7)

CASES = [
    healthy(matches_are_the_longest_valid, match(PROMPT, 16, (1, 2, 3, 4))),
    healthy(matches_are_the_longest_valid, match(OTHER_PROMPT, 4, (5,)), "a-token-shorter-than-the-key"),
    healthy(matches_are_the_longest_valid, match((*PROMPT[:12], 7), 0, ()), "a-window-reaches-into-a-tombstone"),
    healthy(matches_are_the_longest_valid, match(PROMPT, 0, (), namespace=1), "another-namespace"),
    healthy(
        matches_are_the_longest_valid,
        match(PROMPT, 16, (1, 2, 3, 4), earlier=(Split(2, 9, 4),)),
        "a-split-changes-nothing",
    ),
    healthy(
        matches_are_the_longest_valid,
        match(OTHER_PROMPT, 0, (), earlier=(Removed(3, "full", True),)),
        "not-judged-once-the-tree-has-changed",
    ),
    broken(
        matches_are_the_longest_valid,
        "too-short",
        match((*OTHER_PROMPT, 7), 4, (5,)),
        ("request r2", "matched 4 tokens, 8 are cached"),
    ),
    broken(
        matches_are_the_longest_valid,
        "through-a-tombstone",
        match(INSIDE, 12, (1, 2, 3)),
        ("request r2", "matched 12 tokens, 0 are cached"),
    ),
    broken(
        matches_are_the_longest_valid,
        "whole-key",
        match(OTHER_PROMPT, 8, (5, 6)),
        ("request r2", "matched 8 tokens, 4 are cached"),
    ),
    broken(
        matches_are_the_longest_valid,
        "other-pages",
        match(PROMPT, 16, (1, 2, 3, 9)),
        ("request r2", "matched 16 tokens on the pages [1, 2, 3, 9], the tree has [1, 2, 3, 4]"),
    ),
    healthy(
        matches_are_the_longest_valid,
        on_the_shelf(Matched(2, 0, ASKED, 8, (5, 6))),
        "what-the-host-alone-has-is-not-there",
    ),
    broken(
        matches_are_the_longest_valid,
        "on-the-host-alone",
        on_the_shelf(Matched(2, 0, ASKED, 16, (5, 6, 0, 0))),
        ("request r2", "matched 16 tokens, 8 are cached"),
    ),
    healthy(
        matches_are_the_longest_valid,
        match(OTHER_PROMPT, 0, (), earlier=(Demoted(3, "full", True),)),
        "not-judged-once-something-was-left-to-the-host",
    ),
    healthy(
        matches_are_the_longest_valid,
        while_copying(TransferEnded(2, None), Matched(2, 0, ASKED, 16, (5, 6, 11, 12))),
        "not-judged-once-something-was-loaded",
    ),
    broken(
        matches_are_the_longest_valid,
        "before-it-was-loaded",
        while_copying(Matched(2, 0, ASKED, 16, (5, 6, 11, 12)), TransferEnded(2, None)),
        ("request r2", "matched 16 tokens, 8 are cached"),
    ),
]
