"""With write-through the host gets a copy of what ended requests leave in the cache, and drops others for it.

On a server: A prefix that the host was to keep is lost when it is evicted.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

import swarden.invariants.events as seen
from swarden.invariants.contracts.completeness import ended_by_themselves
from swarden.invariants.invariant import invariant
from swarden.invariants.prefixes import cached_pages
from swarden.invariants.transition import Transition, When
from swarden.invariants.view import NodeView, Snapshot
from swarden.invariants.violation import Code, Evidence, found, node_ref, pool_ref, request_ref


class WriteThroughCode(Code):
    NOT_COPIED = "live in {component} after {request} has ended, but the host has no copy, and {free} free pages"
    IDLE_COPIES_STAY = (
        "live in {component} after {request} has ended, but the host has no copy, and {free} pages that are free or "
        "have copies that are not needed"
    )
    CUT_SHORT = "a prefetch of {wanted} tokens got memory for {got}, beside {idle} tokens of copies that are not needed"


def writes_through_and_is_idle(change: Transition) -> bool:
    """Does the engine write through, and did no load, failure or shortage of the host hinder it?"""
    receipts = (*(change.before.receipts or ()), *(change.after.receipts or ()))
    return (
        change.after.limits.writes_through
        and not any(event.failure for event in change.events_of(seen.CopyEnded))
        and not any(receipt.holder.kind == seen.LOAD_KIND for receipt in receipts)
        and all(event.to_host for event in change.events_of(seen.CopyBegan))
        and not change.in_order(seen.CopyDropped, seen.Fired)
        and not _has_dropped_copies(change)
    )


def _has_dropped_copies(change: Transition) -> bool:
    """Has a node of the state before lost a copy?  Not every engine reports that it dropped one."""
    nodes = [(node, change.after.node_by_id.get(node.id)) for node in change.before.nodes or ()]
    return any(
        was and not (later and later.copies[index]) for node, later in nodes for index, was in enumerate(node.copies)
    )


@invariant(
    When.STEP, needs=("nodes", "receipts", "requests", "Given"), on=(seen.Finished,), given=writes_through_and_is_idle
)
def ended_requests_are_written_through(change: Transition) -> Evidence:
    """An idle host with enough free pages has a copy of each node that a request inserted when it ended by itself.

    The copy may be in progress instead (sglang pull 25065).  All parts of its nodes without a copy need room
    together: nodes can be parts of one that was split, and earlier nodes are copied first.  Not checked: steps with a
    failed copy, a load or a fault, or in which the host dropped a copy.
    """
    yield from _not_copied(change, WriteThroughCode.NOT_COPIED, lambda _path: [0] * len(change.after.host_pools))


@invariant(
    When.STEP, needs=("nodes", "receipts", "requests", "Given"), on=(seen.Finished,), given=writes_through_and_is_idle
)
def idle_copies_give_way(change: Transition) -> Evidence:
    """If the free pages are too few, an idle host drops other copies for what a request inserted when it ended.

    Left alone are copies that a load reads or a lock needs before the step or after it, those above them, and of an
    engine that `keeps_live_copies` those of nodes on the device.  Else unused copies fill the host for ever (sglang
    pull 33862).
    """
    yield from _not_copied(change, WriteThroughCode.IDLE_COPIES_STAY, lambda path: _idle_pages(change, path))


@invariant(When.STEP, needs=("nodes", "receipts", "PrefetchSized"), on=(seen.PrefetchSized,))
def prefetches_get_idle_host_memory(change: Transition) -> Evidence:
    """A prefetch from a storage gets less than it wants only if the host has too few copies that it can drop.

    It can drop a copy if no lock and no copy job needs it or one below it, but with `keeps_live_copies` none of a node
    on the device.  Those that it can drop before and after the step are counted.  Not checked: steps with a fault.
    """
    sized = change.events_of(seen.PrefetchSized) if not change.events_of(seen.Fired) else ()
    for event in [event for event in sized if event.got < event.wanted]:
        copied = {node.id for node in _copies_at_rest(change.before)}
        pages = sum(len(node.copies[0]) for node in _copies_at_rest(change.after) if node.id in copied)
        idle = pages * change.after.limits.page_size
        if event.wanted - event.got <= idle:
            values = {"wanted": event.wanted, "got": event.got, "idle": idle}
            yield found(pool_ref(change.after.host_pools[0]), WriteThroughCode.CUT_SHORT, **values)


def _copies_at_rest(state: Snapshot) -> list[NodeView]:
    """The nodes with a copy that no copy job or lock needs."""
    copied = {one.node for one in state.receipts or () if one.holder.kind in (seen.BACKUP_KIND, seen.LOAD_KIND)}
    keeps = state.limits.keeps_live_copies
    held = [node for node in state.nodes or () if any(node.pins) or node.id in copied or (keeps and any(node.live))]
    needed = {above.id for node in held for above in state.path(node.id)}
    return [node for node in state.nodes or () if any(node.copies) and node.id not in needed]


def _not_copied(change: Transition, code: Code, beside_free: Callable[[Sequence[NodeView]], Sequence[int]]) -> Evidence:
    """The nodes of ended requests without a copy, if the host has room for all of them.

    The room are the free pages, and by component the pages `beside_free`, of the nodes on the path of a request.
    """
    free = [len(change.after.pool(name).free) for name in change.after.host_pools]
    pools = [component.pool for component in change.after.components]
    for ended in ended_by_themselves(change):
        owner, tokens = seen.Owner(seen.REQUEST_KIND, ended.id), ended.expected.tokens
        given = {
            (one.pool, unit) for one in change.events_of(seen.Given) if one.from_owner == owner for unit in one.units
        }
        path = [*{node.id: node for node, _ in cached_pages(change.after, ended.expected.namespace, tokens)}.values()]
        need = Counter[int]()
        for node in path:
            need.update({index: len(node.units[index]) for index in _uncopied(node)})
        room = [sum(pages) for pages in zip(free, beside_free(path), strict=True)] if need else free
        has_room = all(count <= room[index] for index, count in need.items())
        for node, indices in _lacking(change, path) if has_room else ():
            if any((pool, unit) in given for pool, units in zip(pools, node.units, strict=True) for unit in units):
                for index in indices:
                    values = {"request": request_ref(ended.id), "free": room[index]}
                    yield found(node_ref(node.id), code, component=pools[index], **values)


def _idle_pages(change: Transition, path: Sequence[NodeView]) -> list[int]:
    """By component, the pages of copies that the host can drop before and after the step, none needed by the path."""
    needed = {node.id for node in path}
    for state in (change.before, change.after):
        for node in state.nodes or ():
            if any(node.pins) or (node.id in state.covered and not any(node.live)):
                needed.update(above.id for above in state.path(node.id))
            if state.limits.keeps_live_copies and any(node.live):
                needed.add(node.id)
    idle = [node for node in change.after.nodes or () if node.id in change.before.node_by_id and node.id not in needed]
    return [sum([len(node.copies[index]) for node in idle]) for index in range(len(change.after.host_pools))]


def _uncopied(node: NodeView) -> list[int]:
    """The components in which a node is live and has no copy."""
    return [index for index, live in enumerate(node.live) if live and not node.copies[index]]


def _lacking(change: Transition, path: Sequence[NodeView]) -> Iterator[tuple[NodeView, Sequence[int]]]:
    """The nodes of a path that have no copy, each with the components in which it is live and gets none.

    The result ends at a node whose copy is in progress: the copies behind it may have to wait.  Without a view of copy
    jobs, the copy of a node with a partial copy may be in progress.
    """
    jobs = [job for state in (change.before, change.after) for job in state.copy_jobs or ()]
    written = {(index, unit) for job in jobs for index, units in enumerate(job.here) for unit in units}
    for node in path:
        if any((index, unit) in written for index, units in enumerate(node.units) for unit in units):
            return
        indices = _uncopied(node)
        if indices and (change.after.copy_jobs is not None or not any(node.copies)):
            yield node, indices
