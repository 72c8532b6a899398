"""With write-through the host gets a copy of what ended requests leave in the cache."""

from collections import Counter
from collections.abc import Iterator

from swarden.invariants.contracts.completeness import ended_by_themselves
from swarden.invariants.events import COPY_JOB_KINDS, CopyBegan, CopyDropped, CopyEnded, Finished, Fired
from swarden.invariants.invariant import invariant
from swarden.invariants.prefixes import cached_pages
from swarden.invariants.transition import Transition, When
from swarden.invariants.view import NodeView
from swarden.invariants.violation import Code, Evidence, found, node_ref, request_ref


class WriteThroughCode(Code):
    NOT_COPIED = "live in {component} after {request} has ended, but the host has no copy, and {free} free pages"


def writes_through_and_is_idle(change: Transition) -> bool:
    """Does the engine write through, and did no other copy, failure or shortage of the host hinder it?"""
    copies = [event for event in change.events_of(CopyEnded) if event.failure]
    return (
        change.after.limits.writes_through
        and not copies
        and not any(receipt.holder.kind in COPY_JOB_KINDS for receipt in change.before.receipts or ())
        and all(event.to_host for event in change.events_of(CopyBegan))
        and not change.in_order(CopyDropped, Fired)
    )


@invariant(
    When.STEP,
    needs=("nodes", "receipts", "requests", "records"),
    on=(Finished,),
    given=writes_through_and_is_idle,
)
def ended_requests_are_written_through(change: Transition) -> Evidence:
    """An idle host with enough free pages has a copy of each node that a request inserted when it ended by itself.

    Or the copy is under way (sglang pull 25065).  Not for nodes which the request shared before its last step, and in
    steps with a failed copy, a load, a fault, or a copy that was under way before or was dropped.
    """
    for ended in ended_by_themselves(change):
        if ended.record is not None:
            path = {
                one.id: one
                for one, _ in cached_pages(change.after, ended.expected.namespace, ended.expected.tokens[:-1])
            }
            lacking = list(_lacking(change, list(path.values())))
            need = Counter[int]()
            for node, index in lacking:
                need[index] += len(node.units[index])
            free = [len(change.after.pool(name).free) for name in change.after.host_pools]
            for node, index in lacking if all(free[index] >= count for index, count in need.items()) else ():
                if node.end > ended.record.protected_len:
                    values = {"request": request_ref(ended.id), "free": free[index]}
                    pool = change.after.components[index].pool
                    yield found(node_ref(node.id), WriteThroughCode.NOT_COPIED, component=pool, **values)


def _lacking(change: Transition, path: list[NodeView]) -> Iterator[tuple[NodeView, int]]:
    """The nodes of a path, with the components in which they are live, and have and get no copy.

    None behind a node whose copy is under way: the copies behind it may have to wait.
    """
    written = {
        (index, unit) for job in change.after.copy_jobs or () for index, units in enumerate(job.here) for unit in units
    }
    for node in path:
        if any((index, unit) in written for index, units in enumerate(node.units) for unit in units):
            return
        for index, is_live in enumerate(node.live):
            if is_live and not node.copies[index]:
                yield node, index
