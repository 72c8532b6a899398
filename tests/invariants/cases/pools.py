"""Pools whose units do not add up, or were moved by somebody else."""

from dataclasses import replace

from invariants.base import When
from invariants.events import Completed, Freed, Given, Paired, Refused, Taken
from invariants.pools import (
    a_refused_take_changes_nothing,
    drained_pools_are_full,
    each_unit_has_one_owner,
    fences_wait_for_a_launch,
    pools_conserve_their_units,
    the_padding_unit_is_never_moved,
    units_move_only_by_their_owner,
)
from invariants.view import Fence
from tests.invariants.builders import (
    AFTER,
    HEALTHY,
    R1,
    R2,
    TREE,
    after,
    broken,
    during,
    healthy,
    holding,
    idle,
    pools,
)

FENCED = replace(AFTER, pools=pools("full", free=[10, 11, 12], fenced=[Fence(7, [9])]))
EMPTY = replace(
    AFTER,
    pools=tuple(replace(pool, free=range(1, pool.capacity + 1), holdings=()) for pool in AFTER.pools),
    nodes=(),
    receipts=(),
    records=(),
    requests=(),
)

CASES = [
    healthy(pools_conserve_their_units),
    broken(
        pools_conserve_their_units,
        "double-owner",
        after(pools=holding("swa", R2, [8])),
        (
            "swa",
            "capacity 8 = free 2 + cached 4 (evictable 2, protected 2) + uncached 3 (request r1 2, request r2 1)"
            ": one too many",
        ),
    ),
    broken(
        pools_conserve_their_units,
        "leak",
        after(pools=pools("full", free=[12], fenced=[Fence(7, [11])])),
        (
            "full",
            "capacity 12 = free 1 + cached 6 (evictable 2, protected 4) + uncached 2 (request r1 2) + fenced 1"
            ": 2 too few",
        ),
    ),
    healthy(each_unit_has_one_owner),
    broken(each_unit_has_one_owner, "leak", after(pools=pools("swa", free=[7])), ("swa page 8", "owned by nobody")),
    broken(
        each_unit_has_one_owner,
        "double-free",
        after(pools=pools("swa", free=[7, 8, 8])),
        ("swa page 8", "owned by free and free"),
    ),
    broken(
        each_unit_has_one_owner,
        "use-after-free-in-balance",
        after(pools=pools("swa", free=[3, 7])),
        ("swa page 3", "owned by free and tree n3"),
        ("swa page 8", "owned by nobody"),
    ),
    broken(
        each_unit_has_one_owner,
        "two-owners",
        after(pools=holding("rows", R2, [1])),
        ("rows row 1", "owned by request r1 and request r2"),
    ),
    broken(
        each_unit_has_one_owner,
        "padding-and-beyond",
        after(pools=pools("rows", free=[0, 3])),
        ("rows row 0", "owned by free, yet rows run from 1 to 2"),
        ("rows row 2", "owned by nobody"),
        ("rows row 3", "owned by free, yet rows run from 1 to 2"),
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
    healthy(the_padding_unit_is_never_moved),
    broken(
        the_padding_unit_is_never_moved,
        "padding-and-beyond",
        during(Freed("swa", (0,), R1, "slid", 0), Taken("full", (13,), R1)),
        ("swa page 0", "freed by request r1 (slid), yet pages run from 1 to 8"),
        ("full page 13", "taken by request r1, yet pages run from 1 to 12"),
    ),
    healthy(fences_wait_for_a_launch, idle(before=FENCED)),
    healthy(fences_wait_for_a_launch, idle(Completed(7), before=FENCED, after=AFTER), "lowered-with-its-launch"),
    broken(
        fences_wait_for_a_launch,
        "lowered-too-early",
        idle(Completed(6), before=FENCED, after=AFTER),
        ("full page 9", "left its fence, yet launch 7 has not completed"),
    ),
    broken(
        fences_wait_for_a_launch,
        "left-standing",
        idle(Completed(7), before=FENCED),
        ("full page 9", "still fenced, yet launch 7 has completed"),
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
    healthy(drained_pools_are_full, replace(HEALTHY, after=EMPTY, when=When.QUIESCENT)),
    broken(
        drained_pools_are_full,
        "something-is-left",
        replace(HEALTHY, after=replace(AFTER, nodes=(AFTER.nodes or ())[1:2]), when=When.QUIESCENT),
        ("full", "capacity 12 = free 4 + cached 6 (evictable 2, protected 4) + uncached 2 (request r1 2)"),
        ("swa", "capacity 8 = free 2 + cached 4 (evictable 2, protected 2) + uncached 2 (request r1 2)"),
        ("rows", "capacity 2 = free 1 + cached 0 (evictable 0, protected 0) + uncached 1 (request r1 1)"),
        ("request r1", "still running"),
        ("request r2", "still waiting"),
        ("request r1", "still has row 1"),
        ("receipt 1", "still out, held by request r1"),
        ("node n2", "still in the tree, with locks [1, 1]"),
    ),
]
