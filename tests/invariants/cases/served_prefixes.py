"""Prompts that were served, and that are computed again."""

from dataclasses import replace

from swarden.invariants.contracts.served_prefixes import ServedPrefixCode, served_prefixes_are_hit
from swarden.invariants.events import CacheReset, Removed, Tombstoned
from swarden.invariants.reference import Past
from swarden.invariants.violation import found, request_ref
from tests.invariants.builders import OTHER_PROMPT, broken, healthy
from tests.invariants.cases.first_passes import first_pass


def again(start, *events, lengths=(4, 8), served=OTHER_PROMPT, **kwargs):
    """The first pass of r2, after r9 was served, with these lengths of its prompt."""
    change = first_pass(start, **kwargs)
    change.reference.submitted(9, namespace=0, prompt=served)
    change.reference.past = Past(served={9: list(lengths)})
    return replace(change, events=(*events, *change.events))


def in_another_namespace():
    change = again(0)
    change.reference.submitted(9, namespace=1, prompt=OTHER_PROMPT)
    return change


def computed_again(start, served):
    return found(request_ref(2), ServedPrefixCode.COMPUTED_AGAIN, start=start, served=served, other=request_ref(9))


CASES = [
    healthy(served_prefixes_are_hit, again(8), "hit"),
    healthy(served_prefixes_are_hit, again(0, lengths=()), "nothing-served"),
    healthy(served_prefixes_are_hit, again(4, num_more=0), "one-token-is-left"),
    healthy(served_prefixes_are_hit, again(0, Removed(3, "full", True)), "evicted"),
    healthy(served_prefixes_are_hit, again(0, Tombstoned(3, "swa", True)), "window-evicted"),
    healthy(served_prefixes_are_hit, again(0, Removed(99, "full", True)), "node-of-this-step-evicted"),
    healthy(served_prefixes_are_hit, again(0, CacheReset(True, 3, False)), "reset"),
    healthy(served_prefixes_are_hit, in_another_namespace(), "other-namespace"),
    healthy(served_prefixes_are_hit, again(0, uncached=True), "uncached"),
    healthy(served_prefixes_are_hit, again(0, is_turn=True), "turn-of-a-session"),
    broken(served_prefixes_are_hit, "all", again(0), computed_again(0, 8)),
    broken(served_prefixes_are_hit, "a-page", again(4), computed_again(4, 8)),
    broken(
        served_prefixes_are_hit,
        "another-prefix-evicted",
        again(0, Removed(1, "full", True)),
        computed_again(0, 8),
    ),
    broken(
        served_prefixes_are_hit,
        "other-tail",
        again(0, lengths=(4,), served=(*OTHER_PROMPT[:4], 77)),
        computed_again(0, 4),
    ),
]
