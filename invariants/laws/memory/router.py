"""KV events as a router reads them: the cache that the router builds from them equals the engine's cache.

On a server: A cache-aware router sends requests to a server that lacks their prefix, or past one that has it.
"""

from collections.abc import Iterator

from swarden.invariants.events import BlocksCleared, BlocksRemoved, BlocksStored
from swarden.invariants.invariant import invariant, state_invariant
from swarden.invariants.transition import Transition, When
from swarden.invariants.violation import Code, Evidence, Ref, found

BLOCK = "cached block"  # the kind of a subject; its id is the hash


class RouterCode(Code):
    CACHED_NOT_REPORTED = (
        "cached {tier} in group {group}, but the KV events removed or never stored it (and {more} more)"
    )
    REPORTED_NOT_CACHED = "not cached {tier} in group {group}, but the KV events stored it (and {more} more)"
    UNKNOWN_PARENT = "stored in group {group} behind parent {parent}, which the KV events never stored, or removed"


@state_invariant(needs=("cached_blocks",), reads=("cached_blocks",))
def router_view_matches_cache(change: Transition) -> Evidence:
    """A router that follows an engine's KV events knows the cached blocks of each group and tier, and no others.

    With a wrong view the router sends requests to engines that do not have their prefix, or past engines that have it.
    """
    for blocks in change.after.cached_blocks or ():
        if blocks.cached == blocks.reported:
            continue
        at = {"group": blocks.group, "tier": "on the host" if blocks.on_host else "on the device"}
        for code, wrong in (
            (RouterCode.CACHED_NOT_REPORTED, blocks.cached - blocks.reported - blocks.moving),
            (RouterCode.REPORTED_NOT_CACHED, blocks.reported - blocks.cached - blocks.moving),
        ):
            if wrong:
                yield found(Ref(BLOCK, min(wrong)), code, **at, more=len(wrong) - 1)


@invariant(When.OP, needs=("cached_blocks",), on=(BlocksStored,))
def stored_blocks_have_known_parents(change: Transition) -> Evidence:
    """A block is reported as stored only behind a block that a router knows, where its group has no window.

    A router hangs the block below its parent.  A group with a window does not cache the blocks below the window.
    """
    for event, at_router in _stored(change):
        if (
            event.parent is not None
            and change.after.components[event.group].window is None
            and event.parent not in at_router
        ):
            subject = Ref(BLOCK, event.hashes[0])
            yield found(subject, RouterCode.UNKNOWN_PARENT, group=event.group, parent=event.parent)


def _stored(change: Transition) -> Iterator[tuple[BlocksStored, set[int]]]:
    """Each report of stored blocks, with the blocks of its group that a router knows at that time, in any tier."""
    views = {(block.group, block.on_host): set(block.reported) for block in change.before.cached_blocks or ()}
    for event in change.in_order(BlocksStored, BlocksRemoved, BlocksCleared):
        if isinstance(event, BlocksStored):
            yield event, set().union(*(view for (group, _), view in views.items() if group == event.group))
            views.setdefault((event.group, event.on_host), set()).update(event.hashes)
        elif isinstance(event, BlocksRemoved):
            views.setdefault((event.group, event.on_host), set()).difference_update(event.hashes)
        else:
            views.clear()
