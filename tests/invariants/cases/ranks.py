"""Further ranks of an engine beside the first one: equal, and with another batch, request, record, tree or pool."""

from dataclasses import replace

from swarden.invariants.laws.lifecycle.ranks import (
    RANK,
    RankCode,
    ranks_compute_equal_batches,
    ranks_have_equal_free_units,
    ranks_have_equal_requests,
    ranks_have_equal_trees,
)
from swarden.invariants.violation import Ref, found, pool_ref, request_ref
from tests.invariants.builders import AFTER, HEALTHY, IN_FLIGHT_AFTER, broken, healthy

SAME = replace(HEALTHY, first=AFTER)
R2 = next(request for request in AFTER.requests or () if request.id == 2)
[RECORD] = AFTER.records or ()
NODES = AFTER.nodes or ()
FULL, *REST = AFTER.pools


def beside(**parts):
    """The healthy step of a rank, whose first rank differs in these parts."""
    return replace(HEALTHY, first=replace(AFTER, **parts))


CASES = [
    healthy(ranks_compute_equal_batches, SAME),
    broken(
        ranks_compute_equal_batches,
        "other-pass-in-flight",
        replace(HEALTHY, first=IN_FLIGHT_AFTER),
        found(Ref(RANK), RankCode.OTHER_PASSES, own=[], first=[((1, 21, 22),)]),
    ),
    healthy(ranks_have_equal_requests, SAME),
    broken(
        ranks_have_equal_requests,
        "other-place",
        beside(requests=tuple([request for request in AFTER.requests or () if request != R2])),
        found(request_ref(2), RankCode.OTHER_REQUEST, own=(R2.place, R2.num_outputs), first=None),
    ),
    broken(
        ranks_have_equal_requests,
        "other-length",
        beside(records=(RECORD._replace(protected_len=8),)),
        found(
            request_ref(1),
            RankCode.OTHER_RECORD,
            own=(RECORD.protected_len, RECORD.launched_len, RECORD.allocated_len),
            first=(8, RECORD.launched_len, RECORD.allocated_len),
        ),
    ),
    healthy(ranks_have_equal_trees, beside(nodes=tuple([node._replace(last_used=9) for node in NODES])), "other-clock"),
    broken(
        ranks_have_equal_trees,
        "node-without-a-copy",
        beside(nodes=(*NODES[:2], NODES[2]._replace(copies=((1, 2), ())))),
        found(Ref(RANK), RankCode.OTHER_NODE, count=1, end=8),
        found(Ref(RANK), RankCode.MISSING_NODE, count=1, end=8),
    ),
    healthy(ranks_have_equal_free_units, SAME),
    broken(
        ranks_have_equal_free_units,
        "one-unit-fewer",
        beside(pools=(replace(FULL, free=FULL.free[1:]), *REST)),
        found(pool_ref("full"), RankCode.OTHER_FREE, own=len(FULL.free), first=len(FULL.free) - 1),
    ),
]
