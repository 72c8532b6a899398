"""Pages that an ended request has computed, and that nobody can use any more."""

from dataclasses import replace

from swarden.invariants.contracts.completeness import CompletenessCode, ended_requests_leave_their_kv_cached
from swarden.invariants.events import Finished, FinishReason, Freed, Owner, Retracted
from swarden.invariants.view import Fence, Holding, NodeView
from swarden.invariants.violation import Ref, found, request_ref
from tests.invariants.builders import AFTER, LIMITS, R1, TREE, broken, during, healthy, pools, records, reference

SHARING = LIMITS._replace(shares_prefixes=True)
ENDED = Finished(1, FinishReason.LENGTH)
FREED = Freed("full", (7, 8), R1, "finished", 0)
NOT_KEPT = found(Ref("page", 7, "full"), CompletenessCode.NOT_KEPT, request=1, start=16, end=20)
LAST_PAGE = tuple(reference(22).expectations[1].tokens[16:20])


def ending(*events, cached=0):
    """The healthy step, in which r1 also ends and frees its pages, of which the tree has `cached` or another one."""
    nodes, full = list(AFTER.nodes or ()), AFTER.pool("full")
    holdings, free = [holding for holding in full.holdings if holding.cached], [*full.free, 7, 8]
    if cached:
        nodes.append(NodeView(4, 2, 0, 16, LAST_PAGE, ((cached,), (0,)), (True, False), (0, 0)))
        holdings.append(Holding(Owner("tree", 4), (cached,), cached=True))
        free.remove(cached)
    return during(
        *events, records=(), nodes=tuple(nodes), pools=pools("full", free=free, holdings=holdings), limits=SHARING
    )


def losing_page_3(*, replaced):
    """r1 ends, and the tree has freed page 3 of its prefix, of which it has another copy then, or none."""
    change = ending(ENDED, FREED, Freed("full", (3,), TREE, "", 0))
    units = ((9, 4), (1, 2))
    nodes = [node._replace(units=units) if node.id == 2 else node for node in change.after.nodes]
    kept = [node for node in nodes if replaced or node.id != 2]
    return replace(change, after=replace(change.after, nodes=tuple(kept)))


def fenced():
    """r1 ends, and its pages are fenced."""
    change = ending(ENDED, FREED)
    free = [unit for unit in change.after.pool("full").free if unit not in (7, 8)]
    return replace(change, after=replace(change.after, pools=pools("full", free=free, fenced=[Fence(7, [7, 8])])))


def with_record(**changes):
    """r1 ends, of which the record before had these parts; None: it had no record."""
    change = ending(ENDED, FREED)
    return replace(change, before=replace(change.before, records=records(**changes) if changes else ()))


CASES = [
    healthy(ended_requests_leave_their_kv_cached, ending(ENDED, FREED, Freed("full", (7,), TREE, "", 0)), "evicted"),
    broken(ended_requests_leave_their_kv_cached, "behind-a-replaced-page", losing_page_3(replaced=True), NOT_KEPT),
    broken(
        ended_requests_leave_their_kv_cached,
        "taken-in-the-step",
        with_record(units=((1, 2, 3, 4), (0, 0, 1, 2))),
        found(request_ref(1), CompletenessCode.NOT_CACHED, start=16, end=20),
    ),
    healthy(ended_requests_leave_their_kv_cached, ending(Retracted(1, 4, ()), ENDED, FREED), "retracted-before"),
]
