"""Records with inconsistent cursors."""

from swarden.invariants.laws.memory.cursors import (
    CursorCode,
    cursors_are_ordered,
    cursors_are_page_aligned,
    frontiers_spare_the_window,
    launched_tokens_are_in_flight,
)
from swarden.invariants.view import ComponentView
from swarden.invariants.violation import found, owner_ref, request_ref
from tests.invariants.builders import PAGE, R1, WINDOW, after, broken, in_flight, records


def out_of_order(protected, committed, launched, allocated):
    return found(
        request_ref(1),
        CursorCode.OUT_OF_ORDER,
        protected_len=protected,
        committed_len=committed,
        launched_len=launched,
        allocated_len=allocated,
    )


def not_in_flight(committed, launched, *entries):
    return found(
        request_ref(1), CursorCode.IN_FLIGHT_DIFFERS, committed_len=committed, launched_len=launched, in_flight=entries
    )


def in_window(frontier, position, most):
    return found(
        owner_ref(R1), CursorCode.FRONTIER_IN_WINDOW, component="swa", frontier=frontier, position=position, most=most
    )


CASES = [
    broken(
        cursors_are_ordered,
        "committed-beyond-allocated",
        after(records=records(allocated_len=20)),
        out_of_order(16, 21, 21, 20),
    ),
    broken(
        cursors_are_ordered,
        "frontier-beyond-allocated",
        after(records=records(frontiers=(0, 24))),
        found(request_ref(1), CursorCode.FRONTIER_OUT_OF_RANGE, frontier=24, allocated_len=21),
    ),
    broken(launched_tokens_are_in_flight, "no-pass-in-flight", in_flight(launches=()), not_in_flight(21, 22)),
    broken(
        cursors_are_page_aligned,
        "frontier-inside-a-page",
        after(records=records(frontiers=(0, 6))),
        found(request_ref(1), CursorCode.FRONTIER_INSIDE_A_PAGE, component="swa", frontier=6, page_size=4),
    ),
    broken(
        cursors_are_page_aligned,
        "shared-part-of-a-larger-page",
        after(
            components=(ComponentView("full", None, page_size=8), ComponentView("swa", WINDOW, PAGE)),
            records=records(protected_len=12),
        ),
        found(request_ref(1), CursorCode.SHARES_PART_OF_A_PAGE, component="full", protected_len=12, page_size=8),
    ),
    broken(
        frontiers_spare_the_window,
        "frontier-in-the-window",
        after(records=records(frontiers=(0, 20))),
        in_window(20, 21, 16),
    ),
]
