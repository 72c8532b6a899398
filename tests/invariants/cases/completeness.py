"""Pages that an ended request has computed, and that nobody can use any more."""

from swarden.invariants.contracts.completeness import CompletenessCode, ended_requests_leave_their_kv_cached
from swarden.invariants.events import Finished, FinishReason, Freed, Owner, Retracted, Taken
from swarden.invariants.view import Holding, NodeView
from swarden.invariants.violation import Ref, found
from tests.invariants.builders import AFTER, LIMITS, R1, R2, broken, during, healthy, pools, reference

SHARING = LIMITS._replace(shares_prefixes=True)
ENDED = Finished(1, FinishReason.LENGTH)
FREED = Freed("full", (7, 8), R1, "finished", 0)
LAST_PAGE = tuple(reference(22).expectations[1].tokens[16:20])


def ending(*events, cached=0):
    """The healthy step, in which r1 also ends and frees its pages, of which the tree has `cached` or another one."""
    nodes, full = list(AFTER.nodes or ()), AFTER.pool("full")
    holdings, free = [one for one in full.holdings if one.cached], [*full.free, 7, 8]
    if cached:
        nodes.append(NodeView(4, 2, 0, 16, LAST_PAGE, ((cached,), (0,)), (True, False), (0, 0)))
        holdings.append(Holding(Owner("tree", 4), (cached,), cached=True))
        free.remove(cached)
    return during(
        *events, records=(), nodes=tuple(nodes), pools=pools("full", free=free, holdings=holdings), limits=SHARING
    )


CASES = [
    healthy(ended_requests_leave_their_kv_cached, ending(ENDED, FREED, cached=7), "kept"),
    healthy(ended_requests_leave_their_kv_cached, ending(ENDED, FREED, cached=9), "cached-elsewhere"),
    healthy(ended_requests_leave_their_kv_cached, ending(ENDED, FREED, Taken("full", (7,), R2)), "taken-again"),
    healthy(ended_requests_leave_their_kv_cached, ending(Finished(1, FinishReason.ABORT), FREED), "aborted"),
    healthy(ended_requests_leave_their_kv_cached, ending(Retracted(1, 4, ()), ENDED, FREED), "retracted-before"),
    broken(
        ended_requests_leave_their_kv_cached,
        "last-page-is-free",
        ending(ENDED, FREED),
        found(Ref("page", 7, "full"), CompletenessCode.NOT_KEPT, request=1, start=16, end=20),
    ),
]
