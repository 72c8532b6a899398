"""Prompts that were served, and that are computed again."""

from dataclasses import replace

from swarden.invariants.contracts.served_prefixes import (
    ServedPrefixCode,
    served_blocks_are_hit,
    served_prefixes_are_hit,
)
from swarden.invariants.events import Freed, Given, Owner, Removed, Tombstoned
from swarden.invariants.limits import Ends, Replays
from swarden.invariants.reference import Computed, Past
from swarden.invariants.violation import found, request_ref
from tests.invariants.builders import OTHER_PROMPT, R1, TREE, broken, healthy
from tests.invariants.cases.first_passes import SHARING, first_pass, first_pass_by_hashes

IN_N3 = Owner("tree", 3)
PROMISING = SHARING._replace(replays=Replays(Ends.PAGES))


def again(start, *events, lengths=(4, 8), served=OTHER_PROMPT, **kwargs):
    """The first pass of r2, after r9 was served, with these lengths of its prompt."""
    change = first_pass(start, **kwargs)
    change.reference.submitted(9, namespace=0, prompt=served)
    change.reference.past = Past(served={9: list(lengths)})
    return replace(change, after=replace(change.after, limits=PROMISING), events=(*events, *change.events))


def evicted(pool, *units, owner=TREE):
    return Freed(pool, units, owner, "evicted", 0)


def silently(change):
    """The step in an engine that reports no evictions, only which pages are freed."""
    return replace(change, after=replace(change.after, unreported=frozenset(["Removed"])))


def again_by_hashes(start, *events, peek_len=0, begun=0, blocks=None):
    """The first pass of r2 in an engine that finds blocks by hashes; r9 had blocks 5, 6 of full and 3, 4 of swa."""
    change = first_pass_by_hashes(start)
    change.reference.submitted(9, namespace=0, prompt=OTHER_PROMPT)
    known = {(0, 0): 5, (0, 1): 6, (1, 0): 3, (1, 1): 4} if blocks is None else blocks
    change.reference.past = Past(served={9: [4, 8]}, computed={9: Computed(begun, known)})
    limits = SHARING._replace(replays=Replays(Ends.PROMPT, peek_len, peek_len))
    return replace(change, after=replace(change.after, limits=limits), events=(*events, *change.events))


def computed_again(start, served):
    return found(request_ref(2), ServedPrefixCode.COMPUTED_AGAIN, start=start, served=served, other=request_ref(9))


CASES = [
    healthy(served_prefixes_are_hit, again(0, Tombstoned(3, "swa", True)), "window-evicted"),
    broken(served_prefixes_are_hit, "all", again(0), computed_again(0, 8)),
    broken(served_prefixes_are_hit, "another-prefix-evicted", again(0, Removed(1, "full", True)), computed_again(0, 8)),
    healthy(served_prefixes_are_hit, silently(again(4, evicted("swa", 4, owner=IN_N3))), "page-of-a-window-lost"),
    healthy(served_prefixes_are_hit, silently(again(0, evicted("full", 9))), "page-of-this-step-lost"),
    healthy(served_blocks_are_hit, again_by_hashes(4, Given("swa", (4,), TREE, R1)), "window-no-longer-cached"),
    healthy(served_blocks_are_hit, again_by_hashes(0, blocks={(0, 0): 0}), "evicted-before"),
    healthy(served_blocks_are_hit, again_by_hashes(0, begun=8, blocks={}), "blocks-of-a-hit-are-not-known"),
    broken(served_blocks_are_hit, "never-cached", again_by_hashes(0, blocks={}), computed_again(0, 8)),
]
