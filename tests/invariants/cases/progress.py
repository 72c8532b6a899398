"""Engines that make no progress, or are not empty after a drain."""

from dataclasses import replace

from swarden.invariants.events import TREE, Owner
from swarden.invariants.kinds import Place
from swarden.invariants.laws.lifecycle.progress import ProgressCode, drained_engine_is_empty, work_makes_progress
from swarden.invariants.limits import SessionTimeout
from swarden.invariants.reference import Expectation, Reference
from swarden.invariants.transition import When
from swarden.invariants.view import FENCE, Fence, Holding, LaunchView, SessionView
from swarden.invariants.violation import Ref, found, node_ref, owner_ref, pool_ref, request_ref
from tests.invariants.builders import AFTER, BEFORE, HEALTHY, PRESSURE, R1, after, broken, healthy, holding, with_pool
from tests.invariants.host_builders import COPYING

EMPTY = replace(
    AFTER,
    pools=tuple(replace(pool, free=range(1, pool.capacity + 1), holdings=()) for pool in AFTER.pools),
    nodes=(),
    receipts=(),
    records=(),
    requests=(),
)
IDLE = replace(HEALTHY, steps_without_forward=4)
PAUSED = replace(IDLE, before=replace(BEFORE, is_paused=True))
HELD_FROM_OUTSIDE = replace(after(pools=holding("swa", PRESSURE, [8])), steps_without_forward=4)
LOADING = replace(IDLE, after=replace(AFTER, is_loading=True))
LOADED = replace(IDLE, before=replace(BEFORE, is_loading=True))
KEPT_UNTIL_TIME_OUT = replace(
    IDLE,
    after=replace(
        AFTER,
        limits=AFTER.limits._replace(session_timeout=SessionTimeout(100)),
        sessions=(SessionView(3, 0, 0, kept_len=8, is_closing=False),),
    ),
)
LAUNCHES_ARE_UNREPORTED = replace(IDLE, after=replace(AFTER, unreported=frozenset({"Launched"})))
UNANSWERED = Reference(expectations={1: Expectation(0, 1, [7]), 2: Expectation(0, 1, [7, 8], reason="length")})


def drained(**parts):
    """A drain that leaves only these parts."""
    return replace(HEALTHY, after=replace(EMPTY, **parts), when=When.QUIESCENT, reference=Reference())


def lasting(held):
    """The pools after a drain: one of them outlasts drains, and has a unit that is held."""
    return with_pool(EMPTY, "swa", free=range(1, 8), holdings=[held], outlasts_drains=True)


CASES = [
    broken(
        work_makes_progress,
        "stuck",
        IDLE,
        found(Ref("engine"), ProgressCode.STUCK, steps=4, requests=(request_ref(1), request_ref(2))),
    ),
    healthy(drained_engine_is_empty, drained(pools=lasting(Holding(TREE, [8], True))), "cached-in-a-pool-that-lasts"),
    broken(
        drained_engine_is_empty,
        "everything-left",
        replace(
            HEALTHY,
            after=replace(AFTER, nodes=(AFTER.nodes or ())[1:2], launches=(LaunchView(7, (), ()),)),
            when=When.QUIESCENT,
        ),
        *(
            found(pool_ref(pool), ProgressCode.UNITS_LEFT, free=free, capacity=capacity, owners=owners, left=(left,))
            for pool, free, capacity, owners, left in (
                ("full", 4, 12, (Owner("tree", 1), Owner("tree", 2), Owner("tree", 3), R1), Ref("page", 1, "full")),
                ("swa", 2, 8, (Owner("tree", 2), Owner("tree", 3), R1), Ref("page", 1, "swa")),
                ("rows", 1, 2, (R1,), Ref("row", 1, "rows")),
            )
        ),
        found(request_ref(1), ProgressCode.REQUEST_LEFT, place=Place.RUNNING),
        found(request_ref(2), ProgressCode.REQUEST_LEFT, place=Place.WAITING),
        found(owner_ref(R1), ProgressCode.RECORD_LEFT, row=1),
        found(Ref("receipt", 1), ProgressCode.RECEIPT_LEFT, holder=R1),
        found(node_ref(2), ProgressCode.NODE_LEFT, locks=(1, 1), pins=None),
        found(Ref("launch", 7), ProgressCode.LAUNCH_LEFT),
    ),
    broken(
        drained_engine_is_empty,
        "unanswered-request",
        replace(drained(), reference=UNANSWERED),
        found(request_ref(1), ProgressCode.REQUEST_UNANSWERED),
    ),
    broken(
        drained_engine_is_empty,
        "leaked-page",
        drained(pools=with_pool(EMPTY, "swa", free=range(1, 8))),
        found(pool_ref("swa"), ProgressCode.UNITS_LOST, free=7, capacity=8),
    ),
    broken(
        drained_engine_is_empty,
        "fence-left",
        drained(pools=with_pool(EMPTY, "swa", free=range(1, 8), fenced=[Fence(7, [8])])),
        found(pool_ref("swa"), ProgressCode.UNITS_LEFT, free=7, capacity=8, owners=(FENCE,), left=()),
    ),
    broken(
        drained_engine_is_empty,
        "copies-and-sessions-left",
        drained(copy_jobs=COPYING.copy_jobs, sessions=(SessionView(3, 0, 0, 0, False),)),
        found(Ref("session", 3), ProgressCode.SESSION_LEFT),
        found(Ref("copy job", 1), ProgressCode.COPY_JOB_LEFT),
        found(Ref("copy job", 2), ProgressCode.COPY_JOB_LEFT),
    ),
]
