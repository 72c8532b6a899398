"""Malformed trees, and nodes whose pages do not match their liveness."""

from swarden.invariants.laws.memory.tree import TreeCode, live_nodes_hold_their_pages, tree_is_well_formed
from swarden.invariants.view import ComponentView
from swarden.invariants.violation import found, node_ref
from tests.invariants.builders import AFTER, PAGE, PROMPT, WINDOW, after, broken, healthy, nodes
from tests.invariants.host_builders import COPYING, COPYING_CONTINUES, COPYING_ENDS, while_copying, with_node

ALL_NODES = AFTER.nodes or ()

STATES = (ComponentView("full", None, PAGE), ComponentView("swa", 2, PAGE, has_states=True))
COARSE = (ComponentView("full", None, page_size=8), ComponentView("swa", WINDOW, PAGE))
ONE_PAGE = ((1,), (0, 0)), ((3,), (1, 2)), ((5,), (3, 4))
COARSE_NODES = tuple(node._replace(units=units) for node, units in zip(ALL_NODES, ONE_PAGE, strict=True))

CASES = [
    healthy(
        tree_is_well_formed,
        after(components=COARSE, nodes=COARSE_NODES),
        "pages-of-two-sizes",
    ),
    broken(
        tree_is_well_formed,
        "other-page-size",
        after(components=COARSE, nodes=(*COARSE_NODES[:2], ALL_NODES[2])),
        found(node_ref(3), TreeCode.WRONG_PAGE_COUNT, component="full", pages=2, key_len=8),
    ),
    broken(
        tree_is_well_formed,
        "orphan",
        after(nodes=ALL_NODES[1:]),
        found(node_ref(2), TreeCode.PARENT_GONE, parent=node_ref(1)),
    ),
    broken(
        tree_is_well_formed,
        "gap",
        after(nodes=nodes(2, start=12)),
        found(node_ref(2), TreeCode.GAP, start=12, parent_end=8),
    ),
    broken(
        tree_is_well_formed,
        "first-node-does-not-start-at-0",
        after(nodes=nodes(3, start=4)),
        found(node_ref(3), TreeCode.GAP, start=4, parent_end=0),
    ),
    broken(
        tree_is_well_formed,
        "partial-page",
        after(nodes=nodes(3, key=(200, 201, 202, 203, 204, 205))),
        found(node_ref(3), TreeCode.PARTIAL_PAGE, key_len=6, page_size=4),
        found(node_ref(3), TreeCode.WRONG_PAGE_COUNT, component="full", pages=2, key_len=6),
        found(node_ref(3), TreeCode.WRONG_PAGE_COUNT, component="swa", pages=2, key_len=6),
    ),
    broken(
        tree_is_well_formed,
        "too-few-pages",
        after(nodes=nodes(3, units=((5,), (3, 4)))),
        found(node_ref(3), TreeCode.WRONG_PAGE_COUNT, component="full", pages=1, key_len=8),
    ),
    broken(
        tree_is_well_formed,
        "same-first-page",
        after(nodes=nodes(3, key=PROMPT[:8])),
        found(node_ref(3), TreeCode.TWIN, sibling=node_ref(1)),
    ),
    broken(
        tree_is_well_formed,
        "other-namespace-than-parent",
        after(nodes=nodes(2, namespace=1)),
        found(node_ref(2), TreeCode.OTHER_NAMESPACE, namespace=1, of_parent=0),
    ),
    broken(
        tree_is_well_formed,
        "duplicate-id",
        after(nodes=(*ALL_NODES, ALL_NODES[2]._replace(namespace=1))),
        found(node_ref(3), TreeCode.ID_TWICE),
    ),
    healthy(
        tree_is_well_formed, after(nodes=nodes(3, namespace=1, key=PROMPT[:8])), "same-first-page-in-two-namespaces"
    ),
    broken(
        live_nodes_hold_their_pages,
        "live-without-pages",
        after(nodes=nodes(2, units=((3, 4), (0, 2)))),
        found(node_ref(2), TreeCode.LIVE_WITHOUT_PAGES, component="swa", pages=(0, 2)),
    ),
    broken(
        live_nodes_hold_their_pages,
        "tombstone-with-pages",
        after(nodes=nodes(1, units=((1, 2), (7, 0)))),
        found(node_ref(1), TreeCode.TOMBSTONE_WITH_PAGES, component="swa", pages=(7, 0)),
    ),
    broken(
        live_nodes_hold_their_pages,
        "tombstone-without-a-window",
        after(nodes=nodes(3, units=((0, 0), (3, 4)), live=(False, True))),
        found(node_ref(3), TreeCode.TOMBSTONE_WITHOUT_WINDOW, component="full"),
    ),
    healthy(
        live_nodes_hold_their_pages,
        after(components=STATES, nodes=nodes(3, units=((5, 6), (0, 4)))),
        "one-state-after-the-last-token",
    ),
    broken(
        live_nodes_hold_their_pages,
        "no-state-after-the-last-token",
        after(components=STATES, nodes=nodes(3, units=((5, 6), (3, 0)))),
        found(node_ref(3), TreeCode.LIVE_WITHOUT_PAGES, component="swa", pages=(3, 0)),
    ),
    healthy(
        live_nodes_hold_their_pages,
        after(components=STATES, nodes=nodes(3, units=((5, 6), (0, 4)), copies=((1, 2), (0, 3)))),
        "copy-of-one-state",
    ),
    broken(
        live_nodes_hold_their_pages,
        "copy-of-another-state",
        after(components=STATES, nodes=nodes(3, units=((5, 6), (0, 4)), copies=((1, 2), (3, 0)))),
        found(node_ref(3), TreeCode.PARTIAL_COPY, component="swa", copies=(3, 0), want=2),
    ),
    healthy(live_nodes_hold_their_pages, COPYING_CONTINUES, "only-on-the-host"),
    healthy(live_nodes_hold_their_pages, COPYING_ENDS, "on-device-and-host"),
    broken(
        live_nodes_hold_their_pages,
        "neither-on-device-nor-host",
        while_copying(nodes=with_node(COPYING, 4, copies=((), (3, 4)))),
        found(node_ref(4), TreeCode.TOMBSTONE_WITHOUT_WINDOW, component="full"),
    ),
    broken(
        live_nodes_hold_their_pages,
        "live-before-the-load-ended",
        while_copying(nodes=with_node(COPYING, 4, live=(True, False))),
        found(node_ref(4), TreeCode.LIVE_WITHOUT_PAGES, component="full", pages=(0, 0)),
    ),
    broken(
        live_nodes_hold_their_pages,
        "partial-copy",
        while_copying(nodes=with_node(COPYING, 3, copies=((3,), (1, 0)))),
        found(node_ref(3), TreeCode.PARTIAL_COPY, component="full", copies=(3,), want=2),
        found(node_ref(3), TreeCode.PARTIAL_COPY, component="swa", copies=(1, 0), want=2),
    ),
]
