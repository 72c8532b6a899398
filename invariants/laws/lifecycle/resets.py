"""Resets and flushes: the commands that drop all KV, as before an update of weights, or all that is not in use.

On a server: A reset beneath a request or a copy gives its pages to other requests: wrong answers.  What a reset or a
flush leaves behind is KV of the old weights, or memory that is lost.  If a reset is refused without a reason, weights
cannot be updated.
"""

from itertools import chain

from swarden.invariants.events import HANDOVER_KIND, RECORD_RELEASES, REQUEST_KIND, CacheReset, Flushed, LetGo
from swarden.invariants.invariant import invariant
from swarden.invariants.laws.lifecycle.sessions import session_ref
from swarden.invariants.transition import Transition, When
from swarden.invariants.view import Snapshot
from swarden.invariants.violation import Code, Evidence, Ref, found, node_ref, owner_ref, pool_ref

MOST_REFUSING_STEPS = 2  # of an idle engine: the step in which it learns that its last request has ended, and one more
IN_USE = frozenset({REQUEST_KIND, HANDOVER_KIND})


class ResetCode(Code):
    TAKEN_FROM = "a reset took the KV in row {row} from it"
    DURING_A_COPY = "reset during a copy to or from the host"
    REFUSED = "refused a reset after {steps} idle steps"
    UNITS_LEFT = "{free} of {capacity} units are free after a reset"
    RECORD_LEFT = "still has row {row} after a reset"
    NODE_LEFT = "still in the tree after a reset"
    KV_LEFT = "still keeps {length} tokens after a reset"
    IDLE_UNITS_LEFT = "still has its units of {pool} after a flush, without a lock"
    IDLE_COPY_LEFT = "still has its copy on the host after a flush, which no load reads and no lock needs"


def can_be_reset(before: Snapshot, idle_steps: int, *, is_copying: bool) -> bool:
    """Whether nothing is in the way of a reset: no unfinished request but in a pause, no KV in use, nothing in flight.

    An engine may refuse for the sake of the KV that a session keeps.
    """
    is_served = bool(before.requests) and not before.is_paused
    is_used = bool(before.records or before.launches or is_copying)
    return idle_steps >= MOST_REFUSING_STEPS and not is_served and not is_used


@invariant(When.OP, needs=("records", "CacheReset"), on=(CacheReset,))
def reset_spares_kv_in_use(change: Transition) -> Evidence:
    """An engine refuses a reset while a request or a transfer has KV, or a copy to or from the host is under way.

    A request or a transfer that has ended in the step, or that the reset puts back into the queue, has given up its KV.
    """
    given_up = {event.request_id for event in change.in_order(*RECORD_RELEASES, LetGo)}  # type: ignore[attr-defined]  # all have one
    for event in change.events_of(CacheReset):
        if event.is_done:
            for record in change.before.records or ():
                if record.owner.kind in IN_USE and record.owner.id not in given_up:
                    yield found(owner_ref(record.owner), ResetCode.TAKEN_FROM, row=record.row)
            if event.is_copying:
                yield found(Ref("engine"), ResetCode.DURING_A_COPY)


@invariant(When.OP, needs=("records", "requests", "launches", "CacheReset"), on=(CacheReset,))
def idle_engine_can_be_reset(change: Transition) -> Evidence:
    """An engine is reset if for two steps no request was unfinished or it was paused, and no KV is in use.

    No KV is in use if no request has any, no session keeps any, and no pass and no copy is in flight.
    """
    for event in change.events_of(CacheReset):
        if not event.is_done and can_be_reset(change.before, event.idle_steps, is_copying=event.is_copying):
            yield found(Ref("engine"), ResetCode.REFUSED, steps=event.idle_steps)


@invariant(When.OP, needs=("records", "CacheReset"), on=(CacheReset,))
def reset_leaves_nothing(change: Transition) -> Evidence:
    """After a reset every unit is free, no node is in the tree, and neither a request nor a session has KV.

    Units that outlast a drain may stay cached.
    """
    after = change.after
    if not any(event.is_done for event in change.events_of(CacheReset)):
        return
    for pool in [pool for pool in after.pools if not pool.outlasts_drains]:
        if len(pool.free) + pool.num_absent != pool.capacity:
            counts = {"free": len(pool.free), "capacity": pool.capacity - pool.num_absent}
            yield found(pool_ref(pool.name), ResetCode.UNITS_LEFT, **counts)
    for record in after.records or ():
        yield found(owner_ref(record.owner), ResetCode.RECORD_LEFT, row=record.row)
    for node in after.nodes or ():
        yield found(node_ref(node.id), ResetCode.NODE_LEFT)
    for session in after.sessions or ():
        if session.kept_len:
            yield found(session_ref(session.id), ResetCode.KV_LEFT, length=session.kept_len)


@invariant(When.OP, needs=("nodes", "receipts", "Flushed"), on=(Flushed,))
def flush_drops_what_is_idle(change: Transition) -> Evidence:
    """After a flush a node has only units that a lock covers, and a copy on the host only if it is still needed.

    Of a component without a window, the nodes above a locked one keep their units, too.  A copy is needed by a load
    that reads it, by the lock on a node that has no units, and by the copy of a child.
    """
    after = change.after
    for index, component in enumerate(after.components):
        locked = set(chain.from_iterable([receipt.covers[index] for receipt in after.receipts or ()]))
        if component.window is None:
            locked.update([node.id for leaf in [*locked] for node in after.path(leaf)])
        for node in after.nodes or ():
            if node.live[index] and node.id not in locked:
                yield found(node_ref(node.id), ResetCode.IDLE_UNITS_LEFT, pool=component.pool)
    for node in after.nodes or ():
        is_read = any(node.pins) or (node.id in after.covered and not any(node.live))
        has_child = any(any(child.copies) for child in after.children.get(node.id, ()))
        if any(node.copies) and not (is_read or has_child):
            yield found(node_ref(node.id), ResetCode.IDLE_COPY_LEFT)
