"""A snapshot shares what is equal with the one before, so that only what changed is checked again."""

from copy import deepcopy
from dataclasses import replace

from invariants.changes import PARTS, Changes
from invariants.reuse import sharing
from tests.invariants.builders import AFTER


def test_equal_snapshot_shares_every_part():
    shared = sharing(AFTER, deepcopy(AFTER))

    assert Changes(AFTER, shared).unchanged == {*PARTS}


def test_only_the_node_and_the_pool_that_changed_are_new():
    copied = deepcopy(AFTER)
    first, *nodes = copied.nodes or ()
    pool, *pools = copied.pools
    changed = first._replace(locks=(7, 7)), replace(pool, free=[])
    after = replace(copied, nodes=(changed[0], *nodes), pools=(changed[1], *pools))

    shared = sharing(AFTER, after)

    assert shared == after
    changes = Changes(AFTER, shared)
    assert changes.unchanged == {*PARTS} - {"nodes", "pools"}
    assert (list(changes.nodes), list(changes.pools)) == ([changed[0]], [changed[1]])
