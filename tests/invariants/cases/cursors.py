"""Records with inconsistent cursors."""

from swarden.invariants.events import Owner
from swarden.invariants.laws.memory.cursors import (
    CursorCode,
    cursors_are_ordered,
    cursors_are_page_aligned,
    frontiers_spare_the_window,
    launched_tokens_are_in_flight,
)
from swarden.invariants.view import ComponentView, LaunchView
from swarden.invariants.violation import found, owner_ref, request_ref
from tests.invariants.builders import (
    IN_FLIGHT_AFTER,
    OVERLAPPED_STEP,
    PAGE,
    R1,
    STALE_LAUNCH,
    WINDOW,
    after,
    broken,
    healthy,
    in_flight,
    in_flight_record,
    records,
)
from tests.invariants.cases.handover import R2_RECORD

IN_FLIGHT = IN_FLIGHT_AFTER.launches or ()


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


def in_window(frontier, position, most, owner=R1):
    return found(
        owner_ref(owner),
        CursorCode.FRONTIER_IN_WINDOW,
        component="swa",
        frontier=frontier,
        position=position,
        most=most,
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
        "protected-beyond-committed",
        after(records=records(protected_len=24)),
        out_of_order(24, 21, 21, 21),
    ),
    broken(
        cursors_are_ordered,
        "frontier-beyond-allocated",
        after(records=records(frontiers=(0, 24))),
        found(request_ref(1), CursorCode.FRONTIER_OUT_OF_RANGE, frontier=24, allocated_len=21),
    ),
    healthy(cursors_are_ordered, OVERLAPPED_STEP, "in-flight"),
    broken(
        cursors_are_ordered,
        "committed-beyond-launched",
        after(records=records(launched_len=20)),
        out_of_order(16, 21, 20, 21),
    ),
    healthy(launched_tokens_are_in_flight, OVERLAPPED_STEP, "one-pass"),
    healthy(
        launched_tokens_are_in_flight,
        in_flight(records=in_flight_record(committed_len=20), launches=(LaunchView(7, ((1, 20, 21),), ()), *IN_FLIGHT)),
        "two-passes",
    ),
    healthy(
        launched_tokens_are_in_flight,
        in_flight(records=in_flight_record(launched_len=21), launches=STALE_LAUNCH),
        "entry-of-a-released-record",
    ),
    broken(launched_tokens_are_in_flight, "no-pass-in-flight", in_flight(launches=()), not_in_flight(21, 22)),
    broken(
        launched_tokens_are_in_flight,
        "gap-between-two-passes",
        in_flight(records=in_flight_record(committed_len=20)),
        not_in_flight(20, 22, (21, 22)),
    ),
    broken(
        launched_tokens_are_in_flight,
        "committed-too-early",
        in_flight(records=in_flight_record(committed_len=22)),
        not_in_flight(22, 22, (21, 22)),
    ),
    healthy(cursors_are_page_aligned),
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
    healthy(frontiers_spare_the_window, after(records=records(frontiers=(0, 16)))),
    broken(
        frontiers_spare_the_window,
        "frontier-in-the-window",
        after(records=records(frontiers=(0, 20))),
        in_window(20, 21, 16),
    ),
    broken(
        frontiers_spare_the_window,
        "frontier-in-the-window-of-launched-tokens",
        in_flight(records=in_flight_record(frontiers=(0, 20))),
        in_window(20, 22, 16),
    ),
    healthy(frontiers_spare_the_window, after(records=(R2_RECORD,)), "transfer-with-frontier-at-the-window"),
    broken(
        frontiers_spare_the_window,
        "transfer-with-frontier-in-the-window",
        after(records=(R2_RECORD._replace(frontiers=(0, 20)),)),
        in_window(20, 22, 16, Owner("transfer", 2)),
    ),
]
