"""Units that were moved or written by somebody else, and nodes that went under a lock."""

from dataclasses import replace

from invariants.events import (
    Completed,
    Demoted,
    Freed,
    Given,
    Paired,
    Refused,
    Removed,
    Retracted,
    Slid,
    Split,
    Taken,
    Tombstoned,
    Unlocked,
    Written,
)
from invariants.moves import (
    a_refused_take_changes_nothing,
    eviction_spares_locked_nodes,
    the_padding_unit_is_never_moved,
    units_move_only_by_their_owner,
    writes_go_to_private_units,
)
from invariants.view import Owner
from tests.invariants.builders import (
    AFTER,
    FENCED,
    FLYING_BEFORE,
    R1,
    R2,
    TREE,
    broken,
    during,
    healthy,
    idle,
    in_flight,
    receipts,
)
from tests.invariants.host_builders import while_copying

WRITTEN = Written(7, 1, "swa", 20, 21, (6,))
KEPT_BY_ITS_SESSION = (Given("swa", (5, 6), R1, Owner("session", 3)), WRITTEN, Completed(7))
AS_A_TURN = tuple(one._replace(sessions=(3,)) for one in FLYING_BEFORE.launches or ())
DEPARTED = replace(AFTER, receipts=receipts(holder=Owner("fence", 7)))


def written(page, *earlier):
    return during(*earlier, Written(7, 1, "swa", 20, 21, (page,)))


CASES = [
    healthy(the_padding_unit_is_never_moved),
    broken(
        the_padding_unit_is_never_moved,
        "padding-and-beyond",
        during(Freed("swa", (0,), R1, "slid", 0), Taken("full", (13,), R1)),
        ("swa page 0", "freed by request r1 (slid), yet pages run from 1 to 8"),
        ("full page 13", "taken by request r1, yet pages run from 1 to 12"),
    ),
    healthy(units_move_only_by_their_owner),
    healthy(
        units_move_only_by_their_owner,
        during(Given("full", (7,), R1, TREE), Freed("full", (7, 5), TREE, "evicted", 0), Taken("full", (5,), R2)),
        "given-freed-taken",
    ),
    healthy(
        units_move_only_by_their_owner,
        idle(Completed(7), Taken("full", (9,), R2), before=FENCED),
        "taken-once-its-launch-has-completed",
    ),
    broken(
        units_move_only_by_their_owner,
        "freed-twice",
        during(Freed("swa", (5,), R1, "slid", 0), Freed("swa", (5,), R1, "slid", 0)),
        ("swa page 5", "freed by request r1 (slid), yet it is free"),
    ),
    broken(
        units_move_only_by_their_owner,
        "freed-twice-at-once",
        during(Freed("swa", (5, 5), R1, "slid", 0)),
        ("swa page 5", "freed by request r1 (slid), yet it is free"),
    ),
    broken(
        units_move_only_by_their_owner,
        "freed-by-another",
        during(Freed("swa", (3,), R1, "slid", 0)),
        ("swa page 3", "freed by request r1 (slid), yet it is owned by tree n3"),
    ),
    broken(
        units_move_only_by_their_owner,
        "taken-in-use",
        during(Taken("full", (7,), R2)),
        ("full page 7", "taken by request r2, yet it is owned by request r1"),
    ),
    broken(
        units_move_only_by_their_owner,
        "taken-behind-a-fence",
        idle(Taken("full", (9,), R2), before=FENCED),
        ("full page 9", "taken by request r2, yet it waits behind a fence"),
    ),
    broken(
        units_move_only_by_their_owner,
        "taken-behind-a-fence-of-this-step",
        idle(Freed("full", (7,), R1, "slid", 8), Taken("full", (7,), R2), Completed(8), before=AFTER),
        ("full page 7", "taken by request r2, yet it waits behind a fence"),
    ),
    broken(
        units_move_only_by_their_owner,
        "given-by-another",
        during(Given("full", (7,), R2, TREE)),
        ("full page 7", "given by request r2 to tree, yet it is owned by request r1"),
    ),
    healthy(
        a_refused_take_changes_nothing,
        during(Taken("full", (9, 10), R1), Freed("full", (10, 9), R1, "rolled back", 0), Refused("swa", R1, 2, 1)),
    ),
    healthy(
        a_refused_take_changes_nothing,
        during(
            Taken("full", (9,), R1),
            Taken("swa", (7,), R1),
            Paired("full", "swa", (9,), (7,)),
            Refused("full", R1, 1, 0),
        ),
        "an-earlier-take-stands",
    ),
    healthy(
        a_refused_take_changes_nothing,
        during(Taken("rows", (2,), R2), Refused("full", R2, 1, 0)),
        "a-row-is-taken-on-its-own",
    ),
    broken(
        a_refused_take_changes_nothing,
        "not-rolled-back",
        during(Taken("full", (9, 10), R1), Refused("swa", R1, 2, 1)),
        ("request r1", "was refused 2 of swa, yet kept full pages 9, 10"),
    ),
    broken(
        a_refused_take_changes_nothing,
        "rolled-back-in-part",
        during(Taken("full", (9, 10), R1), Freed("full", (9,), R1, "rolled back", 0), Refused("swa", R1, 2, 1)),
        ("request r1", "was refused 2 of swa, yet kept full page 10"),
    ),
    healthy(writes_go_to_private_units),
    broken(
        writes_go_to_private_units,
        "the-tree's",
        written(5, Given("swa", (5,), R1, TREE)),
        ("swa page 5", "written by request r1 for [20, 21), yet it is owned by tree"),
    ),
    broken(
        writes_go_to_private_units,
        "free",
        written(6, Taken("swa", (6,), R1), Freed("swa", (6,), R1, "slid", 0)),
        ("swa page 6", "written by request r1 for [20, 21), yet it is free"),
    ),
    broken(
        writes_go_to_private_units,
        "padding",
        written(0),
        ("swa page 0", "written by request r1 for [20, 21), yet it is padding"),
    ),
    healthy(eviction_spares_locked_nodes, idle(Removed(3, "full", True))),
    healthy(eviction_spares_locked_nodes, idle(Unlocked(1, 2), Removed(2, "full", True)), "unlocked-before"),
    healthy(eviction_spares_locked_nodes, idle(Slid(1, 0, 16), Tombstoned(2, "swa", True)), "slid-before"),
    broken(
        eviction_spares_locked_nodes,
        "removed",
        idle(Removed(2, "full", True), Unlocked(1, 2)),
        ("node n2", "removed for full, yet request r1 has it locked"),
    ),
    broken(
        eviction_spares_locked_nodes,
        "upper-half-tombstoned",
        idle(Split(2, 9, 4), Tombstoned(9, "swa", True)),
        ("node n9", "gave up its swa pages, yet request r1 has it locked"),
    ),
    healthy(
        writes_go_to_private_units,
        in_flight(Retracted(1, 3, ()), Freed("swa", (5, 6), R1, "retracted", 8), WRITTEN, Completed(7)),
        "given-up-behind-a-fence",
    ),
    healthy(
        writes_go_to_private_units,
        in_flight(*KEPT_BY_ITS_SESSION, before={"launches": AS_A_TURN}),
        "kept-by-its-session",
    ),
    broken(
        writes_go_to_private_units,
        "kept-by-another-session",
        in_flight(*KEPT_BY_ITS_SESSION, before={"launches": tuple(one._replace(sessions=(4,)) for one in AS_A_TURN)}),
        ("swa page 6", "written by request r1 for [20, 21), yet it is owned by session s3"),
    ),
    broken(
        writes_go_to_private_units,
        "behind-too-early-a-fence",
        in_flight(Freed("swa", (5, 6), R1, "slid", 6), WRITTEN, Completed(6), Completed(7)),
        ("swa page 6", "written by request r1 for [20, 21), yet it waits behind a fence"),
    ),
    healthy(
        eviction_spares_locked_nodes,
        idle(Slid(7, 0, 16), Unlocked(1, 2), Removed(2, "full", True), before=DEPARTED),
        "given-back-by-its-fence",
    ),
    broken(
        eviction_spares_locked_nodes,
        "locked-by-a-fence",
        idle(Slid(7, 0, 16), Tombstoned(2, "swa", True), before=DEPARTED),
        ("node n2", "gave up its swa pages, yet fence f7 has it locked"),
    ),
    healthy(eviction_spares_locked_nodes, idle(Demoted(3, "swa", True)), "left-to-the-host"),
    broken(
        eviction_spares_locked_nodes,
        "left-to-the-host-under-a-lock",
        idle(Slid(1, 0, 16), Demoted(2, "swa", True)),
        ("node n2", "left to the host for swa, yet request r1 has it locked"),
    ),
    broken(
        eviction_spares_locked_nodes,
        "locked-by-transfers",
        while_copying(Demoted(3, "full", True), Tombstoned(2, "swa", True), Unlocked(1, 2), Unlocked(4, 3)),
        ("node n3", "left to the host for full, yet load l2 has it locked"),
        ("node n3", "left to the host for full, yet request r2 has it locked"),
        ("node n2", "gave up its swa pages, yet request r1 has it locked"),
        ("node n2", "gave up its swa pages, yet backup b1 has it locked"),
    ),
]
