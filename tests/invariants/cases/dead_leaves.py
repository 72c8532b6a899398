"""Leaves of the tree that no prompt can match."""

from swarden.invariants.contracts.dead_leaves import LeafCode, cached_leaves_can_be_matched
from swarden.invariants.violation import found, node_ref
from tests.invariants.builders import AFTER, after, broken, healthy


def with_leaf(**changes):
    """n3, a leaf, has lost its window."""
    *others, leaf = AFTER.nodes or ()
    return after(nodes=(*others, leaf._replace(units=((5, 6), (0, 0)), live=(True, False), **changes)))


CASES = [
    healthy(cached_leaves_can_be_matched),
    healthy(cached_leaves_can_be_matched, with_leaf(locks=(1, 0)), "locked"),
    broken(
        cached_leaves_can_be_matched,
        "window-lost",
        with_leaf(),
        found(node_ref(3), LeafCode.DEAD, pages=2, start=0),
    ),
]
