"""The cache as a router knows it from KV events, beside the blocks that are cached."""

from dataclasses import replace

from swarden.invariants.events import BlocksCleared, BlocksRemoved, BlocksStored
from swarden.invariants.laws.memory.router import (
    BLOCK,
    RouterCode,
    router_view_matches_cache,
    stored_blocks_have_known_parents,
)
from swarden.invariants.transition import Transition
from swarden.invariants.view import CachedBlocks
from swarden.invariants.violation import Ref, found
from tests.invariants.builders import broken, during

FULL = 0


def blocks(cached: set[int], reported: set[int], *, group: int = FULL, on_host: bool = False) -> CachedBlocks:
    return CachedBlocks(group, on_host, frozenset(cached), frozenset(reported))


def with_blocks(change: Transition, *after: CachedBlocks, before: tuple[CachedBlocks, ...] = ()) -> Transition:
    states = [replace(state, cached_blocks=views) for state, views in ((change.before, before), (change.after, after))]
    return replace(change, before=states[0], after=states[1])


def storing(*events: BlocksStored | BlocksRemoved | BlocksCleared, known: set[int] | None = None) -> Transition:
    """A step with these KV events, before which a router knows some blocks of the first group."""
    known = known or set()
    return with_blocks(during(*events), before=(blocks(known, known),))


CASES = [
    broken(
        router_view_matches_cache,
        "one-of-two-copies-evicted",
        with_blocks(during(), blocks({1, 2, 3}, {1})),
        found(Ref(BLOCK, 2), RouterCode.CACHED_NOT_REPORTED, group=FULL, tier="on the device", more=1),
    ),
    broken(
        router_view_matches_cache,
        "dropped-copy-not-reported",
        with_blocks(during(), blocks({1}, {1}), blocks(set(), {1}, on_host=True)),
        found(Ref(BLOCK, 1), RouterCode.REPORTED_NOT_CACHED, group=FULL, tier="on the host", more=0),
    ),
    broken(
        stored_blocks_have_known_parents,
        "parent-never-stored",
        storing(BlocksStored(FULL, (3, 4), 2)),
        found(Ref(BLOCK, 3), RouterCode.UNKNOWN_PARENT, group=FULL, parent=2),
    ),
    broken(
        stored_blocks_have_known_parents,
        "parent-removed-before",
        storing(BlocksRemoved(FULL, (2,)), BlocksStored(FULL, (3,), 2), known={2}),
        found(Ref(BLOCK, 3), RouterCode.UNKNOWN_PARENT, group=FULL, parent=2),
    ),
    broken(
        stored_blocks_have_known_parents,
        "parent-cleared-before",
        storing(BlocksCleared(), BlocksStored(FULL, (3,), 2), known={2}),
        found(Ref(BLOCK, 3), RouterCode.UNKNOWN_PARENT, group=FULL, parent=2),
    ),
]
