"""The engine makes progress while there is work, and is empty after a drain.

On a server: The server stops answering, or memory is lost that only a restart brings back.
"""

from swarden.invariants.events import ABSENT, OUTSIDE_KIND, Retracted
from swarden.invariants.invariant import invariant
from swarden.invariants.laws.lifecycle.flights import launch_ref
from swarden.invariants.laws.lifecycle.sessions import session_ref
from swarden.invariants.transition import Transition, When
from swarden.invariants.view import FENCE, PoolView, Snapshot
from swarden.invariants.violation import Code, Evidence, Ref, found, node_ref, owner_ref, pool_ref, request_ref

MOST_IDLE_STEPS = 4  # this many steps in a row without a pass, while work waits, are a livelock


class ProgressCode(Code):
    STUCK = "{steps} steps without a pass, with work: {requests}"
    UNITS_LEFT = "{free} of {capacity} units are free, the rest is owned by {owners}"
    UNITS_LOST = "{free} of {capacity} units are free, the rest has no owner"
    REQUEST_LEFT = "still {place} after a drain"
    REQUEST_UNANSWERED = "accepted, but its client got no end of it"
    RECORD_LEFT = "still has row {row} after a drain"
    RECEIPT_LEFT = "still held by {holder} after a drain"
    NODE_LEFT = "still in the tree after a drain, with locks {locks}, host locks {pins}"
    LAUNCH_LEFT = "still in flight after a drain"
    SESSION_LEFT = "still open after a drain"
    COPY_JOB_LEFT = "still under way after a drain"


def is_expected_to_compute(change: Transition) -> bool:
    """Must the engine compute something?  Not after many idle steps that have a known end.

    Known ends are those of a pause, of a copy, of units taken from outside the engine, and of an idle session's KV if
    sessions are closed in time.  A request that gives its units back ends a wait for them: the next step computes.
    """
    copies = [state.is_loading or state.copy_jobs for state in (change.before, change.after)]  # one may just have ended
    return change.steps_without_forward < MOST_IDLE_STEPS or not (
        change.before.is_paused
        or any(copies)
        or change.events_of(Retracted)
        or (change.after.limits.session_timeout and (_keeps_idle_kv(change.before) or _keeps_idle_kv(change.after)))
        or any(holding.owner.kind == OUTSIDE_KIND for pool in change.after.pools for holding in pool.holdings)
    )


def _keeps_idle_kv(state: Snapshot) -> bool:
    return any(session.kept_len and not session.turn for session in state.sessions or ())


@invariant(When.STEP, needs=("Launched", "Completed"), given=is_expected_to_compute)
def work_makes_progress(change: Transition) -> Evidence:
    """While there is work, the engine computes something within a few steps.

    Idle steps are allowed in a pause, during a copy, while units are taken from outside the engine, and while the
    session time-out will free the KV of an idle session.  A step in which a request ends, other than by an abort or
    its timeout, or is preempted, is not idle: its units serve the next one.
    """
    if change.steps_without_forward >= MOST_IDLE_STEPS:
        requests = tuple(request_ref(request.id) for request in change.after.requests or ())
        yield found(Ref("engine"), ProgressCode.STUCK, steps=change.steps_without_forward, requests=requests)


@invariant(When.QUIESCENT)
def drained_engine_is_empty(change: Transition) -> Evidence:
    """After a drain every unit is free, and no request, record, lock, node, pass, session or copy job is left.

    Each accepted request has ended for its client, unless that has aborted it.  Cached units may stay in a pool that
    outlasts drains.
    """
    after = change.after
    for pool in after.pools:
        num_kept = pool.num_cached if pool.outlasts_drains else 0
        if len(pool.free) + pool.num_absent + num_kept != pool.capacity:
            yield from _left_in(pool)
    for request in after.requests or ():
        yield found(request_ref(request.id), ProgressCode.REQUEST_LEFT, place=request.place)
    for request_id, expected in change.reference.expectations.items():
        if expected.reason is None and not expected.is_aborted and request_id not in after.request_by_id:
            yield found(request_ref(request_id), ProgressCode.REQUEST_UNANSWERED)
    for record in after.records or ():
        yield found(owner_ref(record.owner), ProgressCode.RECORD_LEFT, row=record.row)
    for receipt in after.receipts or ():
        yield found(Ref("receipt", receipt.id), ProgressCode.RECEIPT_LEFT, holder=receipt.holder)
    for node in after.nodes or ():
        yield found(node_ref(node.id), ProgressCode.NODE_LEFT, locks=tuple(node.locks), pins=tuple(node.pins) or None)
    for view in after.launches or ():
        yield found(launch_ref(view.launch), ProgressCode.LAUNCH_LEFT)
    for session in after.sessions or ():
        yield found(session_ref(session.id), ProgressCode.SESSION_LEFT)
    for job in after.copy_jobs or ():
        yield found(Ref("copy job", job.id), ProgressCode.COPY_JOB_LEFT)


def _left_in(pool: PoolView) -> Evidence:
    """The units of a pool that are not free after a drain, with their owners if they have any."""
    owners = dict.fromkeys(holding.owner for holding in pool.holdings if holding.units and holding.owner != ABSENT)
    if pool.num_fenced:
        owners[FENCE] = None
    subject, counts = pool_ref(pool.name), {"free": len(pool.free), "capacity": pool.capacity - pool.num_absent}
    if owners:
        left = [Ref(pool.unit, one.units[0], pool.name) for one in pool.holdings if one.units and one.owner in owners]
        yield found(subject, ProgressCode.UNITS_LEFT, **counts, owners=tuple(owners), left=tuple(left[:1]))
    else:
        yield found(subject, ProgressCode.UNITS_LOST, **counts)
