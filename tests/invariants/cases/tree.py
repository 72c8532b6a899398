"""Trees that do not hang together, and counters that do not count them."""

from invariants.tree import (
    live_nodes_hold_live_pages,
    tree_is_well_formed,
)
from tests.invariants.builders import AFTER, PROMPT, after, broken, healthy, nodes
from tests.invariants.host_builders import COPYING, LANDED, UNDER_WAY, while_copying, with_node

ALL_NODES = AFTER.nodes or ()

CASES = [
    healthy(tree_is_well_formed),
    broken(
        tree_is_well_formed,
        "orphan",
        after(nodes=ALL_NODES[1:]),
        ("node n2", "its parent node n1 is not in the tree"),
    ),
    broken(
        tree_is_well_formed,
        "gap",
        after(nodes=nodes(2, start=12)),
        ("node n2", "starts at 12, yet node n1 ends at 8"),
    ),
    broken(
        tree_is_well_formed,
        "not-at-the-root",
        after(nodes=nodes(3, start=4)),
        ("node n3", "starts at 4, yet the root ends at 0"),
    ),
    broken(
        tree_is_well_formed,
        "part-of-a-page",
        after(nodes=nodes(3, key=(200, 201, 202, 203, 204, 205))),
        ("node n3", "has a key of 6 tokens, want whole pages of 4"),
        ("node n3", "has 2 full pages for 6 tokens"),
        ("node n3", "has 2 swa pages for 6 tokens"),
    ),
    broken(
        tree_is_well_formed,
        "too-few-pages",
        after(nodes=nodes(3, units=((5,), (3, 4)))),
        ("node n3", "has 1 full pages for 8 tokens"),
    ),
    broken(
        tree_is_well_formed,
        "twins",
        after(nodes=nodes(3, key=PROMPT[:8])),
        ("node n3", "begins with the same page as its sibling node n1"),
    ),
    broken(
        tree_is_well_formed,
        "another-namespace",
        after(nodes=nodes(2, namespace=1)),
        ("node n2", "is of namespace 1, its parent of 0"),
    ),
    broken(
        tree_is_well_formed,
        "one-id-twice",
        after(nodes=(*ALL_NODES, ALL_NODES[2]._replace(namespace=1))),
        ("node n3", "is there twice"),
    ),
    healthy(tree_is_well_formed, after(nodes=nodes(3, namespace=1, key=PROMPT[:8])), "twins-in-two-namespaces"),
    healthy(live_nodes_hold_live_pages),
    broken(
        live_nodes_hold_live_pages,
        "live-on-dead-pages",
        after(nodes=nodes(2, units=((3, 4), (0, 2)))),
        ("node n2", "is live in swa, yet has the pages [0, 2]"),
    ),
    broken(
        live_nodes_hold_live_pages,
        "dead-on-live-pages",
        after(nodes=nodes(1, units=((1, 2), (7, 0)))),
        ("node n1", "is a tombstone in swa, yet has the pages [7, 0]"),
    ),
    broken(
        live_nodes_hold_live_pages,
        "no-window-to-be-dead-in",
        after(nodes=nodes(3, units=((0, 0), (3, 4)), live=(False, True))),
        ("node n3", "is a tombstone in full, which has no window"),
    ),
    healthy(live_nodes_hold_live_pages, UNDER_WAY, "on-the-host-alone"),
    healthy(live_nodes_hold_live_pages, LANDED, "here-and-on-the-host"),
    broken(
        live_nodes_hold_live_pages,
        "neither-here-nor-there",
        while_copying(nodes=with_node(COPYING, 4, copies=((), (3, 4)))),
        ("node n4", "is a tombstone in full, which has no window"),
    ),
    broken(
        live_nodes_hold_live_pages,
        "told-of-before-it-has-come",
        while_copying(nodes=with_node(COPYING, 4, live=(True, False))),
        ("node n4", "is live in full, yet has the pages [0, 0]"),
    ),
]
