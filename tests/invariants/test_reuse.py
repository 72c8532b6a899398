"""A snapshot shares what is equal with the one before, so that only what changed is checked again."""

from copy import deepcopy
from dataclasses import replace

from swarden.invariants.changes import PARTS, Changes
from swarden.invariants.reuse import sharing
from swarden.invariants.transition import Transition
from tests.invariants.builders import AFTER


def test_equal_snapshot_shares_every_part():
    shared = sharing(AFTER, deepcopy(AFTER))

    assert Changes(AFTER, shared).unchanged == {*PARTS}


def test_state_inherits_the_indexes_of_the_parts_that_it_shares():
    before = replace(AFTER)
    known = before.node_by_id, before.record_by_request

    after = Transition(before, (), replace(AFTER, records=())).after

    assert after.node_by_id is known[0]
    assert after.record_by_request == {} != known[1]


def test_only_the_node_and_the_pool_that_changed_are_new():
    copied = deepcopy(AFTER)
    first, *nodes = copied.nodes or ()
    pool, *pools = copied.pools
    changed = first._replace(locks=(7, 7)), replace(pool, free=[])
    after = replace(copied, nodes=(changed[0], *nodes), pools=(changed[1], *pools))

    shared = sharing(AFTER, deepcopy(after))

    assert shared == after
    changes = Changes(AFTER, shared)
    assert changes.unchanged == {*PARTS} - {"nodes", "pools"}
    assert (list(changes.nodes), list(changes.pools)) == ([changed[0]], [changed[1]])
