"""What the cache keeps can be found."""

from itertools import chain

from swarden.invariants.invariant import invariant
from swarden.invariants.limits import BOTH
from swarden.invariants.prefixes import reachable_len
from swarden.invariants.transition import Transition, When
from swarden.invariants.violation import Code, Evidence, found, node_ref


class LeafCode(Code):
    DEAD = "keeps {pages} pages, but no prompt matches beyond {start}, where it begins, and it is not locked"


def has_no_host_and_no_states(change: Transition) -> bool:
    """Is it one engine, without a host tier and without states?"""
    after = change.after
    return not after.host_pools and after.limits.role == BOTH and not any(one.has_states for one in after.components)


@invariant(When.OP, needs=("nodes",), given=has_no_host_and_no_states)
def cached_leaves_can_be_matched(change: Transition) -> Evidence:
    """A prompt can match into each leaf of the tree, or the leaf is locked.

    The other pages of a leaf that has lost its window cannot be used (sglang pull 29369).  Our engine keeps such a leaf
    until it is evicted where the host has dropped the copy of a window, and where the state of a leaf was evicted while
    it was locked for its other pages: so this is not judged with a host tier, with states, or in a pair.
    """
    after = change.after
    for node in after.nodes or ():
        has_lost = not all(node.live) and not any(node.locks)
        if has_lost and node.id not in after.children:
            path = after.path(node.id)[::-1]
            tokens = list(chain.from_iterable([one.key for one in path]))
            if reachable_len(after, node.namespace, tokens) <= node.start:
                pages = sum(1 for units in (*node.units, *node.copies) for unit in units if unit)
                yield found(node_ref(node.id), LeafCode.DEAD, pages=pages, start=node.start)
