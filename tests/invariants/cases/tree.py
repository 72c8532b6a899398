"""Malformed trees, and nodes whose pages do not match their liveness."""

from swarden.invariants.laws.memory.tree import TreeCode, live_nodes_hold_their_pages, tree_is_well_formed
from swarden.invariants.view import ComponentView
from swarden.invariants.violation import found, node_ref
from tests.invariants.builders import AFTER, PAGE, PROMPT, WINDOW, after, broken, nodes

ALL_NODES = AFTER.nodes or ()

STATES = (ComponentView("full", None, PAGE), ComponentView("swa", 2, PAGE, has_states=True))
COARSE = (ComponentView("full", None, page_size=8), ComponentView("swa", WINDOW, PAGE))
ONE_PAGE = ((1,), (0, 0)), ((3,), (1, 2)), ((5,), (3, 4))
COARSE_NODES = tuple(node._replace(units=units) for node, units in zip(ALL_NODES, ONE_PAGE, strict=True))

CASES = [
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
    broken(
        live_nodes_hold_their_pages,
        "copy-of-another-state",
        after(components=STATES, nodes=nodes(3, units=((5, 6), (0, 4)), copies=((1, 2), (3, 0)))),
        found(node_ref(3), TreeCode.PARTIAL_COPY, component="swa", copies=(3, 0), want=2),
    ),
]
