"""Units that another than their owner moves or writes, and nodes that are evicted under a lock."""

import swarden.invariants.events as seen
from swarden.invariants.laws.memory.moves import (
    MoveCode,
    copies_go_to_private_units,
    eviction_spares_locked_nodes,
    padding_unit_is_never_moved,
    refused_takes_change_nothing,
    units_move_only_by_their_owner,
    writes_go_to_private_units,
)
from swarden.invariants.view import FENCE, FREE
from swarden.invariants.violation import found, node_ref, request_ref
from tests.invariants.builders import (
    AFTER,
    FENCED,
    IN_FLIGHT_BEFORE,
    LIMITS,
    R1,
    R2,
    TREE,
    broken,
    during,
    healthy,
    idle,
    in_flight,
    page,
)

WRITTEN = seen.Written(7, 1, "swa", 20, 21, (6,))
SOME_REQUEST = seen.Owner("request")
KEPT_BY_ITS_SESSION = (seen.Given("swa", (5, 6), R1, seen.Owner("session", 3)), WRITTEN, seen.Completed(7))
AS_A_TURN = tuple(one._replace(sessions=(3,)) for one in IN_FLIGHT_BEFORE.launches or ())


def written(unit, *earlier):
    return during(*earlier, seen.Written(7, 1, "swa", 20, 21, (unit,)))


def shared_uncomputed(unit, *earlier):
    """Pages are shared before they are computed; the table of r1 has unit 6 at the page of position 20."""
    return during(
        *earlier, seen.Written(7, 1, "swa", 20, 21, (unit,), 1), limits=LIMITS._replace(shares_uncomputed=True)
    )


def written_by_another(unit, owner):
    return found(page("swa", unit), MoveCode.WRITTEN_BY_ANOTHER, request=request_ref(1), start=20, end=21, owner=owner)


def copied_over(unit, by, owner):
    return found(page("swa", unit), MoveCode.COPIED_OVER, by=by, owner=owner)


def evicted(node, code, component, holder=R1):
    return found(node_ref(node), code, component=component, holder=holder)


CASES = [
    broken(
        padding_unit_is_never_moved,
        "padding-and-beyond",
        during(seen.Freed("swa", (0,), R1, "slid", 0), seen.Taken("full", (13,), R1)),
        found(page("swa", 0), MoveCode.OUT_OF_RANGE, move="freed", by=R1, last=8),
        found(page("full", 13), MoveCode.OUT_OF_RANGE, move="taken", by=R1, last=12),
    ),
    healthy(
        units_move_only_by_their_owner,
        idle(seen.Completed(7), seen.Taken("full", (9,), R2), before=FENCED),
        "taken-after-its-launch-completed",
    ),
    broken(
        units_move_only_by_their_owner,
        "freed-twice",
        during(seen.Freed("swa", (5,), R1, "slid", 0), seen.Freed("swa", (5,), R1, "slid", 0)),
        found(page("swa", 5), MoveCode.FREED_TWICE, by=R1, cause="slid", owner=FREE),
    ),
    broken(
        units_move_only_by_their_owner,
        "freed-by-another",
        during(seen.Freed("swa", (3,), R1, "slid", 0)),
        found(page("swa", 3), MoveCode.FREED_BY_ANOTHER, by=R1, cause="slid", owner=seen.Owner("tree", 3)),
    ),
    broken(
        units_move_only_by_their_owner,
        "taken-while-fenced-in-this-step",
        idle(seen.Freed("full", (7,), R1, "slid", 8), seen.Taken("full", (7,), R2), seen.Completed(8), before=AFTER),
        found(page("full", 7), MoveCode.TAKEN_IN_USE, by=R2, owner=FENCE),
    ),
    broken(
        units_move_only_by_their_owner,
        "given-by-another",
        during(seen.Given("full", (7,), R2, TREE)),
        found(page("full", 7), MoveCode.GIVEN_BY_ANOTHER, by=R2, to=TREE, owner=R1),
    ),
    healthy(
        refused_takes_change_nothing, during(seen.Taken("rows", (2,), R2), seen.Refused("full", R2, 1, 0)), "row-kept"
    ),
    broken(
        refused_takes_change_nothing,
        "not-rolled-back",
        during(seen.Taken("full", (9, 10), R1), seen.Refused("swa", R1, 2, 1)),
        found(
            request_ref(1), MoveCode.KEPT_AFTER_REFUSAL, pool="swa", want=2, kept=(page("full", 9), page("full", 10))
        ),
    ),
    broken(
        refused_takes_change_nothing,
        "partly-rolled-back",
        during(
            seen.Taken("full", (9, 10), R1),
            seen.Freed("full", (9,), R1, "rolled back", 0),
            seen.Refused("swa", R1, 2, 1),
        ),
        found(request_ref(1), MoveCode.KEPT_AFTER_REFUSAL, pool="swa", want=2, kept=(page("full", 10),)),
    ),
    broken(
        writes_go_to_private_units,
        "cached-unit",
        written(5, seen.Given("swa", (5,), R1, TREE)),
        written_by_another(5, TREE),
    ),
    healthy(
        writes_go_to_private_units,
        shared_uncomputed(6, seen.Taken("swa", (6,), R1), seen.Given("swa", (6,), R1, TREE)),
        "cached-unit-of-the-writer-before-it-is-computed",
    ),
    broken(
        writes_go_to_private_units,
        "cached-unit-that-stands-elsewhere-in-the-table-of-the-writer",
        shared_uncomputed(5, seen.Given("swa", (5,), R1, TREE)),
        written_by_another(5, TREE),
    ),
    broken(
        writes_go_to_private_units,
        "padding",
        written(0),
        found(page("swa", 0), MoveCode.WRITTEN_PADDING, request=request_ref(1), start=20, end=21, owner=None),
    ),
    healthy(
        copies_go_to_private_units,
        during(
            seen.Taken("swa", (6,), R1), seen.Given("swa", (6,), R1, TREE), seen.CopiedIn("swa", (5, 6), SOME_REQUEST)
        ),
        "new-unit-of-the-cache",
    ),
    broken(
        copies_go_to_private_units,
        "cached-unit",
        during(seen.CopiedIn("swa", (5, 3), SOME_REQUEST), seen.Filled(1, "swa", (0,), (3,))),
        copied_over(3, SOME_REQUEST, seen.Owner("tree", 3)),
        copied_over(3, seen.Owner("transfer", 1), seen.Owner("tree", 3)),
    ),
    broken(
        copies_go_to_private_units,
        "load-over-a-cached-unit",
        during(seen.CopyBegan(5, False, (("swa", (3,), (1,)),))),
        copied_over(3, seen.Owner("load", 5), seen.Owner("tree", 3)),
    ),
    broken(
        copies_go_to_private_units,
        "unit-of-another-request-and-unknown-unit",
        during(seen.CopiedIn("swa", (5, 99), R2)),
        copied_over(5, R2, R1),
        copied_over(99, R2, None),
    ),
    broken(
        eviction_spares_locked_nodes,
        "removed",
        idle(seen.Removed(2, "full", True), seen.Unlocked(1, 2)),
        evicted(2, MoveCode.REMOVED_UNDER_LOCK, "full"),
    ),
    broken(
        eviction_spares_locked_nodes,
        "upper-half-of-a-split-node-tombstoned",
        idle(seen.Split(2, 9, 4), seen.Tombstoned(9, "swa", True)),
        evicted(9, MoveCode.TOMBSTONED_UNDER_LOCK, "swa"),
    ),
    healthy(
        writes_go_to_private_units,
        in_flight(seen.Retracted(1, 3, ()), seen.Freed("swa", (5, 6), R1, "retracted", 8), WRITTEN, seen.Completed(7)),
        "fenced-for-the-pass",
    ),
    healthy(
        writes_go_to_private_units,
        in_flight(*KEPT_BY_ITS_SESSION, before={"launches": AS_A_TURN}),
        "kept-by-its-session",
    ),
    broken(
        writes_go_to_private_units,
        "fenced-for-an-earlier-pass",
        in_flight(seen.Freed("swa", (5, 6), R1, "slid", 6), WRITTEN, seen.Completed(6), seen.Completed(7)),
        written_by_another(6, FENCE),
    ),
    broken(
        eviction_spares_locked_nodes,
        "demoted-under-a-lock",
        idle(seen.Slid(1, 0, 16), seen.Demoted(2, "swa", True)),
        evicted(2, MoveCode.DEMOTED_UNDER_LOCK, "swa"),
    ),
]
