"""Requests that compute what the cache has."""

from dataclasses import replace

from swarden.invariants.contracts.first_passes import (
    FirstPassCode,
    first_passes_skip_cached_blocks,
    first_passes_skip_cached_prefixes,
    first_passes_skip_offloaded_blocks,
)
from swarden.invariants.events import Launched
from swarden.invariants.violation import found, request_ref
from tests.invariants.builders import AFTER, BEFORE, HEALTHY, LIMITS, OTHER_PROMPT, broken, healthy, reference

SHARING = LIMITS._replace(shares_prefixes=True)


def first_pass(start, *, num_more=4, uncached=False, nodes=AFTER.nodes, is_turn=False):
    """The first pass of r2, whose prompt is that of n3 and some tokens more; afterwards the tree has these nodes."""
    known = reference(22)
    known.submitted(2, namespace=0, prompt=(*OTHER_PROMPT, *range(num_more)))
    known.expectations[2].is_uncached = uncached
    length = len(known.tokens_of(2))
    waiting = [
        one._replace(prompt_len=length, session=3 if is_turn else 0) if one.id == 2 else one
        for one in BEFORE.requests or ()
    ]
    return replace(
        HEALTHY,
        before=replace(BEFORE, requests=tuple(waiting)),
        after=replace(AFTER, limits=SHARING, nodes=nodes),
        events=(Launched(8, ((2, start, length),)),),
        reference=known,
    )


def first_pass_by_hashes(start, *, before=((7, 8), (3, 4)), after=((7, 8), (3, 4))):
    """The first pass of r2 in an engine without nodes, with the cached pages of its prompt before and after."""
    change = first_pass(start)
    parts = (change.before, before), (change.after, after)
    states = [replace(state, nodes=None, cached_columns={2: columns}) for state, columns in parts]
    return replace(change, before=states[0], after=states[1])


def first_pass_by_host(start, *, columns=((1, 1), (0, 1)), **limits):
    """The first pass of r2 in an engine with states beside full attention, and these pages of it in host memory."""
    change = first_pass(start)
    full, swa, *_ = AFTER.components
    components = (full, swa._replace(window=2, has_states=True))
    parts = {"nodes": None, "components": components, "offloaded_columns": {2: columns}}
    after = replace(change.after, limits=SHARING._replace(**limits), **parts)
    return replace(change, before=replace(change.before, **parts), after=after)


def computed(start, usable):
    return found(request_ref(2), FirstPassCode.CACHED_TOKENS_COMPUTED, start=start, usable=usable)


CASES = [
    healthy(first_passes_skip_cached_prefixes, first_pass(0, is_turn=True), "turn-of-a-session"),
    broken(first_passes_skip_cached_prefixes, "computes-all", first_pass(0), computed(0, 8)),
    healthy(first_passes_skip_cached_blocks, first_pass_by_hashes(4, before=((7, 8), (5, 0))), "window-missing"),
    healthy(first_passes_skip_offloaded_blocks, first_pass_by_host(4, draft_row_len=2), "last-block-with-drafts"),
    *(
        broken(
            first_passes_skip_offloaded_blocks,
            name,
            first_pass_by_host(start, **limits),
            found(request_ref(2), FirstPassCode.OFFLOADED_TOKENS_COMPUTED, start=start, usable=8),
        )
        for name, start, limits in (
            ("computes-blocks-in-host-memory", 0, {"draft_row_len": 2}),
            ("computes-its-last-block-with-drafts-of-n-grams", 4, {"draft_len": 2}),
        )
    ),
    broken(first_passes_skip_cached_blocks, "computes-cached-blocks", first_pass_by_hashes(0), computed(0, 8)),
]
