"""Records whose cursors, rows or pages do not fit together."""

from dataclasses import replace

from invariants.cursors import (
    cursors_are_aligned,
    cursors_are_ordered,
    frontiers_spare_the_window,
    private_windows_are_bounded,
    room_ahead_is_the_lookahead,
    rows_begin_with_the_tree_path,
    rows_hold_the_pages_of_their_record,
    the_last_token_keeps_its_page,
    what_is_launched_is_in_flight,
    windowed_pages_go_with_the_frontier,
)
from invariants.view import LaunchView
from tests.invariants.builders import (
    AFTER,
    BEFORE,
    FLYING,
    FLYING_AFTER,
    HEALTHY,
    R2,
    STALE,
    after,
    broken,
    flying_record,
    healthy,
    in_flight,
    records,
)
from tests.invariants.cases.handover import ROOM

IN_FLIGHT = FLYING_AFTER.launches or ()
SHORTER = ROOM._replace(allocated_len=10, frontier=4)  # what is to come of it begins in the window of what is here
FULL, SWA = (1, 2, 3, 4, 7, 8), (0, 0, 1, 2, 5, 6)


def unshared(frontier):
    """The healthy step of an r1 that shares nothing."""
    return replace(
        HEALTHY,
        before=replace(BEFORE, records=records(protected_len=0, committed_len=20)),
        after=replace(AFTER, records=records(protected_len=0, frontier=frontier)),
    )


CASES = [
    healthy(cursors_are_ordered),
    broken(
        cursors_are_ordered,
        "committed-beyond-allocated",
        after(records=records(allocated_len=20)),
        ("request r1", "protected_len 16, committed_len 21, launched_len 21, allocated_len 20"),
    ),
    broken(
        cursors_are_ordered,
        "protected-beyond-committed",
        after(records=records(protected_len=24)),
        ("request r1", "protected_len 24, committed_len 21, launched_len 21, allocated_len 21"),
    ),
    broken(
        cursors_are_ordered,
        "frontier-not-clamped",
        after(records=records(frontier=24)),
        ("request r1", "frontier 24, allocated_len 21"),
    ),
    healthy(cursors_are_ordered, FLYING, "in-flight"),
    broken(
        cursors_are_ordered,
        "committed-beyond-launched",
        after(records=records(launched_len=20)),
        ("request r1", "protected_len 16, committed_len 21, launched_len 20, allocated_len 21"),
    ),
    healthy(what_is_launched_is_in_flight),
    healthy(what_is_launched_is_in_flight, FLYING, "one-pass"),
    healthy(
        what_is_launched_is_in_flight,
        in_flight(records=flying_record(committed_len=20), launches=(LaunchView(7, ((1, 20, 21),), ()), *IN_FLIGHT)),
        "two-passes",
    ),
    healthy(
        what_is_launched_is_in_flight,
        in_flight(records=flying_record(launched_len=21), launches=STALE),
        "of-a-record-that-is-gone",
    ),
    broken(
        what_is_launched_is_in_flight,
        "nothing",
        in_flight(launches=()),
        ("request r1", "committed_len 21, launched_len 22, yet nothing is in flight"),
    ),
    broken(
        what_is_launched_is_in_flight,
        "with-a-gap",
        in_flight(records=flying_record(committed_len=20)),
        ("request r1", "committed_len 20, launched_len 22, yet [21, 22) is in flight"),
    ),
    broken(
        what_is_launched_is_in_flight,
        "committed-too-early",
        in_flight(records=flying_record(committed_len=22)),
        ("request r1", "committed_len 22, launched_len 22, yet [21, 22) is in flight"),
    ),
    healthy(room_ahead_is_the_lookahead),
    healthy(room_ahead_is_the_lookahead, in_flight(records=flying_record(allocated_len=24)), "as-much-as-may-be"),
    healthy(room_ahead_is_the_lookahead, after(records=records(allocated_len=24)), "to-the-end-of-the-page"),
    broken(
        room_ahead_is_the_lookahead,
        "a-page-too-many",
        in_flight(records=flying_record(allocated_len=25)),
        ("request r1", "allocated_len 25, launched_len 22, at most 24 with a lookahead of 2"),
    ),
    healthy(cursors_are_aligned),
    broken(
        cursors_are_aligned,
        "both",
        after(records=records(protected_len=15, frontier=6)),
        ("request r1", "protected_len 15 is inside a page of 4"),
        ("request r1", "frontier 6 is inside a page of 4"),
    ),
    healthy(rows_hold_the_pages_of_their_record),
    broken(
        rows_hold_the_pages_of_their_record,
        "stale-row",
        after(records=records(table=(1, 2, 3, 4, 9, 8))),
        ("request r1", "row 1, page index 4: the row names page 9, the record page 7"),
    ),
    broken(
        rows_hold_the_pages_of_their_record,
        "short-row",
        after(records=records(table=FULL[:5])),
        ("request r1", "row 1, page index 5: the row names nothing, the record page 8"),
    ),
    broken(
        rows_hold_the_pages_of_their_record,
        "too-few-pages",
        after(records=records(units=(FULL, SWA[:5]))),
        ("request r1", "5 swa pages for allocated_len 21"),
    ),
    broken(
        rows_hold_the_pages_of_their_record,
        "beyond-the-row",
        after(records=records(allocated_len=41, units=(range(1, 12), range(1, 12)), table=range(1, 12))),
        ("request r1", "allocated_len 41, yet row 1 ends at 40"),
    ),
    healthy(rows_begin_with_the_tree_path),
    healthy(
        rows_begin_with_the_tree_path,
        after(records=records(units=(FULL, (8, 0, 1, 2, 5, 6)))),
        "below-the-window-nobody-reads",
    ),
    broken(
        rows_begin_with_the_tree_path,
        "another-page",
        after(records=records(units=((1, 2, 9, 4, 7, 8), SWA))),
        ("full page 9", "in the row of request r1 at page index 2, the tree has 3"),
    ),
    broken(
        rows_begin_with_the_tree_path,
        "another-length",
        after(records=records(protected_len=8)),
        ("request r1", "protected_len 8, yet node n2 ends at 16"),
    ),
    broken(
        rows_begin_with_the_tree_path,
        "no-node",
        after(records=records(node=0)),
        ("request r1", "protected_len 16, yet it shares no node"),
    ),
    healthy(windowed_pages_go_with_the_frontier),
    healthy(
        windowed_pages_go_with_the_frontier,
        after(records=records(protected_len=0, frontier=8)),
        "gone-below-the-frontier",
    ),
    broken(
        windowed_pages_go_with_the_frontier,
        "kept",
        after(records=records(frontier=20)),
        ("request r1", "still has swa page 5 for positions [16, 20), below its frontier 20"),
    ),
    broken(
        windowed_pages_go_with_the_frontier,
        "lost",
        after(records=records(units=(FULL, (0, 0, 1, 2, 0, 6)))),
        ("request r1", "no swa page for positions [16, 20)"),
    ),
    broken(
        windowed_pages_go_with_the_frontier,
        "lost-where-there-is-no-window",
        after(records=records(frontier=20, units=((1, 2, 3, 4, 0, 8), (0, 0, 1, 2, 0, 6)))),
        ("request r1", "no full page for positions [16, 20)"),
    ),
    healthy(frontiers_spare_the_window, after(records=records(frontier=16))),
    broken(
        frontiers_spare_the_window,
        "slid-too-far",
        after(records=records(frontier=20)),
        ("request r1", "frontier 20 where position 21 is next, at most 16"),
    ),
    broken(
        frontiers_spare_the_window,
        "slid-past-what-is-launched",
        in_flight(records=flying_record(frontier=20)),
        ("request r1", "frontier 20 where position 22 is next, at most 16"),
    ),
    healthy(private_windows_are_bounded),
    healthy(private_windows_are_bounded, unshared(frontier=8), "as-many-as-may-be"),
    broken(
        private_windows_are_bounded,
        "never-slid",
        unshared(frontier=0),
        ("request r1", "keeps 20 tokens of swa, at most 12: committed_len was 20, frontier 0"),
    ),
    healthy(the_last_token_keeps_its_page),
    broken(
        the_last_token_keeps_its_page,
        "gone",
        after(records=records(units=(FULL, (0, 0, 1, 2, 5, 0)))),
        ("request r1", "no swa page for its last token, at position 20"),
    ),
    healthy(room_ahead_is_the_lookahead, after(records=(ROOM,)), "for-what-is-to-come-from-another-engine"),
    broken(
        room_ahead_is_the_lookahead,
        "for-a-whole-prompt-that-is-computed-here",
        after(records=(ROOM._replace(owner=R2),)),
        ("request r2", "allocated_len 22, launched_len 8, at most 8 with a lookahead of 0"),
    ),
    healthy(rows_begin_with_the_tree_path, after(records=(ROOM,)), "behind-what-is-to-come-nobody-reads-the-window"),
    broken(
        rows_begin_with_the_tree_path,
        "another-page-in-the-window-behind-what-is-to-come",
        after(records=(SHORTER._replace(units=((5, 6, 9), (0, 5, 7))),)),
        ("swa page 5", "in the row of transfer t2 at page index 1, the tree has 4"),
    ),
    healthy(frontiers_spare_the_window, after(records=(ROOM,)), "up-to-the-window-behind-what-is-to-come"),
    broken(
        frontiers_spare_the_window,
        "beyond-the-window-behind-what-is-to-come",
        after(records=(ROOM._replace(frontier=20),)),
        ("transfer t2", "frontier 20 where position 22 is next, at most 16"),
    ),
]
