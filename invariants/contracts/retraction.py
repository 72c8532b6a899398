"""Retraction: only when it is necessary, of the request that loses least, and so that the others can run.

On a server: Running requests lose their work without need: with a full pool, throughput and latency are worse.
"""

from collections.abc import Iterator, Sequence, Set

import swarden.invariants.events as seen
from swarden.invariants.invariant import invariant
from swarden.invariants.kinds import Place
from swarden.invariants.passes import FreeUnits, KVHolders
from swarden.invariants.transition import Transition, When
from swarden.invariants.violation import Code, Evidence, Found, Ref, found, node_ref, owner_ref, request_ref
from swarden.invariants.windows import window_frontier


class RetractionCode(Code):
    ENOUGH_IS_FREE = "retracted, but the next decode step needs {need}, and {free} are free"
    PASSES_HOLD_ENOUGH = "retracted for {pool}, but {count} of its units wait for passes in flight"
    DEAD_PAGES_KEPT = (
        "retracted for {pool}, but {holder} keeps pages from {frontier} on, and its window starts at {dead_below}"
    )
    EVICTABLE_NODE_KEPT = "retracted for {pool}, but {node} could be evicted"
    OTHER_LOSES_LESS = (
        "retracted with priority {priority}, {num_outputs} outputs, prompt_len {prompt_len}, but {least} loses less: "
        "priority {least_priority}, {least_num_outputs} outputs, prompt_len {least_prompt_len}"
    )
    NOT_COMPUTED = "runs, but no pass computes it after the retraction"


def retracts_least_done(change: Transition) -> bool:
    """Does the engine retract the request with the fewest outputs (`retracts_least_done`)?"""
    return change.after.limits.retracts_least_done


@invariant(When.OP, needs=("nodes", "records", "requests"), on=(seen.Retracted,))
def retraction_is_necessary(change: Transition) -> Evidence:
    """A request is retracted only if the next decode step needs more pages than are free or can be freed otherwise.

    The engine can evict unlocked nodes, free pages out of the window, and wait for the passes in flight.
    """
    free_units, gone = FreeUnits(change.before), set[int]()
    for event in change.events:
        free_units.apply(event)
        if isinstance(event, seen.Retracted):
            yield from _unnecessary(change, event, free_units, gone)
        if isinstance(event, seen.RECORD_RELEASES):
            gone.add(event.request_id)
        elif isinstance(event, seen.Failed):
            gone.update(one.request_id for one in change.landings if one.failed and one.launch == event.launch)


@invariant(When.OP, needs=("requests", "launches"), on=(seen.Retracted,), given=retracts_least_done)
def retraction_takes_least_done_request(change: Transition) -> Evidence:
    """The retracted request has the lowest priority; of equals the fewest outputs, then the longest prompt.

    Of requests that are still equal, the latest is retracted.
    """
    holders = KVHolders(change.before, change.landings)
    for event in change.pass_events:
        if isinstance(event, seen.Retracted) and event.request_id in holders.ids:
            least = min(holders.ids, key=lambda request_id: _loss(holders, request_id))
            if least != event.request_id:
                values = _loss_values("least_", holders, least) | _loss_values("", holders, event.request_id)
                subject = request_ref(event.request_id)
                yield found(subject, RetractionCode.OTHER_LOSES_LESS, least=request_ref(least), **values)
        holders.apply(event)


@invariant(When.STEP, needs=("requests",), on=(seen.Retracted,))
def retraction_lets_others_run(change: Transition) -> Evidence:
    """After a retraction every request that still runs is computed in the same step.

    Not checked if the step waits for backups of nodes to be evicted.
    """
    computed, waits = set[int](), False
    backups = {view.id for view in change.before.copy_jobs or () if view.to_host}
    for event in change.events:
        if isinstance(event, seen.Retracted):
            computed.clear()
        elif isinstance(event, seen.Launched):
            computed.update(entry[0] for entry in event.entries)
        elif isinstance(event, seen.CopyBegan) and event.to_host:
            backups.add(event.job)
        elif isinstance(event, seen.CopyEnded):
            backups.discard(event.job)
        elif isinstance(event, seen.Evicted):
            freed = dict(event.freed)
            waits = bool(backups) and any(freed.get(pool, 0) < count for pool, count in event.need)
    for request in change.after.requests or () if not waits else ():
        if request.place == Place.RUNNING and request.id not in computed:
            yield found(request_ref(request.id), RetractionCode.NOT_COMPUTED)


def _unnecessary(change: Transition, event: seen.Retracted, free_units: FreeUnits, gone: Set[int]) -> Evidence:
    """The pages that could have been used instead of a retraction, as far as the two states show it."""
    subject = request_ref(event.request_id)
    short = [pool for pool, count in event.need if count > 0]
    need = _decode_need(change, gone)
    free = {pool: free_units.free.get(pool, 0) for pool in need}
    if not any(count > free[pool] for pool, count in need.items()):
        yield found(subject, RetractionCode.ENOUGH_IS_FREE, need=need, free=free)
    for pool in short:
        if free_units.num_fenced(pool):
            yield found(subject, RetractionCode.PASSES_HOLD_ENOUGH, pool=pool, count=free_units.num_fenced(pool))
    yield from _dead_pages_kept(change, subject, short)
    touched = {node.id for lock in change.events_of(seen.Locked) for node in change.after.path(lock.node)}
    for index, component in enumerate(change.before.components):
        for node in change.before.nodes or () if component.pool in short else ():
            later = change.after.node_by_id.get(node.id)
            idle = later is not None and later.live[index] and not later.locks[index] and node.id not in touched
            if idle and node.live[index] and not node.locks[index]:
                values = {"pool": component.pool, "node": node_ref(node.id)}
                yield found(subject, RetractionCode.EVICTABLE_NODE_KEPT, **values)


def _loss(holders: KVHolders, request_id: int) -> tuple[int, int, int, int]:
    """The rank of a request in the order of retraction; the lowest is retracted."""
    request = holders.requests[request_id]
    return request.priority, holders.outputs[request_id], -request.prompt_len, -request_id


def _loss_values(prefix: str, holders: KVHolders, request_id: int) -> dict[str, object]:
    request, outputs = holders.requests[request_id], holders.outputs[request_id]
    loss = {"priority": request.priority, "num_outputs": outputs, "prompt_len": request.prompt_len}
    return {f"{prefix}{name}": value for name, value in loss.items()}


def _decode_need(change: Transition, gone: Set[int]) -> dict[str, int]:
    """By pool, the pages that all running requests need for one more token and the lookahead."""
    before = change.before
    page_size, lookahead = before.limits.page_size, before.limits.lookahead_len
    running = [one for one in before.requests or () if one.place == Place.RUNNING and one.id not in gone]
    count = 0
    for request in running:
        if (record := before.record_by_request.get(request.id)) is not None:
            reach = record.launched_len + change.accepted.get(request.id, 0) + 1 + lookahead
            count += max(0, -(-reach // page_size) - -(-record.allocated_len // page_size))
    for event in change.events_of(seen.TakenOver):
        if event.request_id not in gone:
            count += -(-(event.length + 1 + lookahead) // page_size) - -(-event.length // page_size)
    need: dict[str, int] = {}
    for component in before.components:
        need[component.pool] = need.get(component.pool, 0) + count
    return need


def _dead_pages_kept(change: Transition, subject: Ref, short: Sequence[str]) -> Iterator[Found]:
    """The records that keep pages that were out of their window before the step."""
    page_size = change.before.limits.page_size
    for index, component in enumerate(change.before.components):
        pool, window = component.pool, component.window
        for request_id, record in change.after.record_by_request.items() if pool in short else ():
            earlier = change.before.record_by_request.get(request_id)
            if window is None or earlier is None or earlier.row != record.row:
                continue
            dead_below = window_frontier(earlier.committed_len, window, page_size)
            frontier = record.frontiers[index]
            if dead_below > max(frontier, record.protected_len):
                values = {"holder": owner_ref(record.owner), "dead_below": dead_below, "frontier": frontier}
                yield found(subject, RetractionCode.DEAD_PAGES_KEPT, pool=pool, **values)
