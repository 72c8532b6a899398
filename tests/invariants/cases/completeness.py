"""Pages that an ended request has computed, and that nobody can use any more."""

from copy import deepcopy
from dataclasses import replace

from swarden.invariants.contracts.completeness import CompletenessCode, ended_requests_leave_their_kv_cached
from swarden.invariants.events import Finished, FinishReason, Freed, Owner, Retracted, Taken
from swarden.invariants.view import Fence, Holding, NodeView
from swarden.invariants.violation import Ref, found, request_ref
from tests.invariants.builders import AFTER, LIMITS, R1, R2, TREE, broken, during, healthy, pools, records, reference

SHARING = LIMITS._replace(shares_prefixes=True)
ENDED = Finished(1, FinishReason.LENGTH)
FREED = Freed("full", (7, 8), R1, "finished", 0)
NOT_KEPT = found(Ref("page", 7, "full"), CompletenessCode.NOT_KEPT, request=1, start=16, end=20)
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


def losing_page_3(*, replaced):
    """r1 ends, and the tree has freed page 3 of its prefix, of which it has another copy then, or none."""
    change = ending(ENDED, FREED, Freed("full", (3,), TREE, "", 0))
    units = ((9, 4), (1, 2))
    nodes = [node._replace(units=units) if node.id == 2 else node for node in change.after.nodes]
    kept = [node for node in nodes if replaced or node.id != 2]
    return replace(change, after=replace(change.after, nodes=tuple(kept)))


def owned_by(owner):
    """r1 ends, and another owner than the tree has its pages."""
    change = ending(ENDED, FREED)
    full = change.after.pool("full")
    held = [*full.holdings, Holding(owner, (7, 8), cached=False)]
    free = [unit for unit in full.free if unit not in (7, 8)]
    return replace(change, after=replace(change.after, pools=pools("full", free=free, holdings=held)))


def fenced():
    """r1 ends, and its pages are fenced."""
    change = ending(ENDED, FREED)
    free = [unit for unit in change.after.pool("full").free if unit not in (7, 8)]
    return replace(change, after=replace(change.after, pools=pools("full", free=free, fenced=[Fence(7, [7, 8])])))


def in_namespace(number):
    """r1 ends; its last page is cached, but the prompt belongs to another namespace."""
    change = ending(ENDED, FREED, cached=9)
    reference = deepcopy(change.reference)
    reference.expectations[1].namespace = number
    return replace(change, reference=reference)


def with_record(**changes):
    """r1 ends, of which the record before had these parts; None: it had no record."""
    change = ending(ENDED, FREED)
    return replace(change, before=replace(change.before, records=records(**changes) if changes else ()))


def with_pages_of(size):
    """r1 ends; a second component without a window has pages of this size."""
    change = ending(ENDED, FREED)
    components = (change.after.components[0]._replace(page_size=size), change.after.components[1])
    return replace(change, after=replace(change.after, components=components))


CASES = [
    healthy(ended_requests_leave_their_kv_cached, owned_by(R2), "of-another-owner"),
    healthy(ended_requests_leave_their_kv_cached, fenced(), "fenced"),
    healthy(ended_requests_leave_their_kv_cached, with_pages_of(16), "no-whole-page-of-all-components"),
    healthy(ended_requests_leave_their_kv_cached, ending(Finished(1, FinishReason.STOP), FREED, cached=7), "stopped"),
    healthy(ended_requests_leave_their_kv_cached, ending(ENDED, FREED, Freed("full", (7,), TREE, "", 0)), "evicted"),
    healthy(ended_requests_leave_their_kv_cached, losing_page_3(replaced=False), "cut-off"),
    broken(ended_requests_leave_their_kv_cached, "behind-a-replaced-page", losing_page_3(replaced=True), NOT_KEPT),
    broken(
        ended_requests_leave_their_kv_cached,
        "another-page-is-evicted",
        ending(ENDED, FREED, Freed("full", (5,), TREE, "evicted", 0)),
        NOT_KEPT,
    ),
    broken(
        ended_requests_leave_their_kv_cached, "stopped-and-free", ending(ENDED._replace(reason="stop"), FREED), NOT_KEPT
    ),
    broken(
        ended_requests_leave_their_kv_cached,
        "in-another-namespace",
        in_namespace(5),
        *(
            found(Ref("page", unit, "full"), CompletenessCode.NOT_KEPT, request=1, start=start, end=start + 4)
            for unit, start in ((7, 16),)
        ),
    ),
    broken(
        ended_requests_leave_their_kv_cached,
        "taken-in-the-step",
        with_record(units=((1, 2, 3, 4), (0, 0, 1, 2))),
        found(request_ref(1), CompletenessCode.NOT_CACHED, start=16, end=20),
    ),
    broken(
        ended_requests_leave_their_kv_cached,
        "began-in-the-step",
        with_record(),
        found(request_ref(1), CompletenessCode.NOT_CACHED, start=16, end=20),
    ),
    healthy(ended_requests_leave_their_kv_cached, ending(ENDED, FREED, cached=7), "kept"),
    healthy(ended_requests_leave_their_kv_cached, ending(ENDED, FREED, cached=9), "cached-elsewhere"),
    healthy(ended_requests_leave_their_kv_cached, ending(ENDED, FREED, Taken("full", (7,), R2)), "taken-again"),
    healthy(ended_requests_leave_their_kv_cached, ending(Finished(1, FinishReason.ABORT), FREED), "aborted"),
    healthy(ended_requests_leave_their_kv_cached, ending(Retracted(1, 4, ()), ENDED, FREED), "retracted-before"),
    broken(
        ended_requests_leave_their_kv_cached,
        "last-page-is-free",
        ending(ENDED, FREED),
        NOT_KEPT,
    ),
]
