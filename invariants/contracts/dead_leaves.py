"""What the cache keeps can be found."""

from itertools import chain

from swarden.invariants.invariant import invariant
from swarden.invariants.limits import BOTH
from swarden.invariants.prefixes import reachable_len
from swarden.invariants.transition import Transition, When
from swarden.invariants.violation import Code, Evidence, found, node_ref


class LeafCode(Code):
    DEAD = "keeps {pages} pages, but no prompt matches beyond {start}, where it begins, and it is not locked"


def is_one_engine_without_host(change: Transition) -> bool:
    return not change.after.host_pools and change.after.limits.role == BOTH


@invariant(When.OP, needs=("nodes",), given=is_one_engine_without_host)
def cached_leaves_can_be_matched(change: Transition) -> Evidence:
    """A prompt can match into each leaf of the tree, or the leaf is locked.

    A leaf that has lost its window keeps its other pages for nobody (sglang pull 29369).  Our engine keeps
    such a leaf until it is evicted where the host has dropped the copy of a window, and where a decode side has evicted
    a state of a leaf that was locked for its other pages: so this is not judged with a host tier, nor in a pair.
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
