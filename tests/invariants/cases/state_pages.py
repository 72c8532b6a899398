"""Nodes and records that lack pages of states, or keep too many."""

from swarden.invariants.contracts.state_pages import (
    StatePagesCode,
    live_nodes_hold_all_states,
    passed_states_are_freed,
    records_keep_their_last_state,
)
from swarden.invariants.view import ComponentView
from swarden.invariants.violation import found, node_ref, request_ref
from tests.invariants.builders import PAGE, after, broken, nodes, page, records

STATES = (ComponentView("full", None, PAGE), ComponentView("swa", 2, PAGE, has_states=True))
FULL = (1, 2, 3, 4, 7, 8)

CASES = [
    broken(
        live_nodes_hold_all_states,
        "only-the-last-state",
        after(components=STATES, nodes=nodes(3, units=((5, 6), (0, 4)))),
        found(node_ref(3), StatePagesCode.NODE_LACKS_PAGES, component="swa", pages=(0, 4)),
    ),
    broken(
        passed_states_are_freed,
        "kept-below-the-frontier",
        after(components=STATES, records=records(frontiers=(0, 20))),
        found(request_ref(1), StatePagesCode.KEPT_BELOW_FRONTIER, unit=page("swa", 5), start=16, frontier=20),
    ),
    broken(
        records_keep_their_last_state,
        "at-a-page-boundary",
        after(components=STATES, records=records(launched_len=20, units=(FULL, (0, 0, 1, 2, 0, 6)))),
        found(request_ref(1), StatePagesCode.LAST_STATE_MISSING, component="swa", position=19),
    ),
]
