"""Who has to give way, to whom, and what is left of who did."""

from collections.abc import Iterator, Set

from invariants.admission import PLANNED_BY, demand_is_known
from invariants.events import (
    LEAVINGS,
    Admitted,
    Evicted,
    Failed,
    Finished,
    GaveWay,
    Launched,
    LoadPlanned,
    Locked,
    Preempted,
    RanOut,
    Retracted,
    TakenOver,
    TransferBegan,
    TransferEnded,
)
from invariants.invariant import invariant
from invariants.passes import Standing, Stock
from invariants.planning import RUNNING, rivalry
from invariants.transition import Transition, When
from invariants.view import OUTSIDE_KIND, REQUEST_KIND, Owner, RecordView, RequestView, Snapshot
from invariants.violation import Evidence
from invariants.windows import kept_len, window_frontier
from invariants.wording import node_name, request_name, units_of

OUT_OF_MEMORY = "out of memory"
FORWARD_FAILED = "forward failed"
PUT_BACK = {Retracted: "retracted", Preempted: "preempted"}  # in the words for it; anybody else was put back


def least_done_first(change: Transition) -> bool:
    return change.after.limits.retracts_least_done


def preemption_can_be_foretold(change: Transition) -> bool:
    """May anybody be preempted, by an engine of which is known what it admits?"""
    return change.before.limits.preemption_threshold is not None and demand_is_known(change)


@invariant(When.OP, needs=("nodes", "records", "requests"), on=(Retracted,))
def retraction_is_necessary(change: Transition) -> Evidence:
    """Nobody gives way while a pool could still give up pages that nobody has locked, or that are dead in a window.

    And the need of the next decode step is more than what is free, even once what is in flight has completed.
    """
    stock, gone = Stock(change.before), set[int]()
    for event in change.events:
        stock.hear(event)
        if isinstance(event, Retracted):
            yield from _unnecessary(change, event, stock, gone)
        if isinstance(event, LEAVINGS):
            gone.add(event.request_id)
        elif isinstance(event, Failed):
            gone.update(one.request_id for one in change.landings if one.failed and one.launch == event.launch)


@invariant(When.OP, needs=("requests", "launches"), on=(Retracted,), given=least_done_first)
def who_has_least_to_lose_is_retracted(change: Transition) -> Evidence:
    """Of those who hold KV the least important is retracted; of equals who has fewest outputs, then by longest prompt.

    Of those who are still equal, the latest.
    """
    standing = Standing(change.before, change.landings)
    for event in change.pass_events:
        if isinstance(event, Retracted) and event.request_id in standing.holders:
            least = min(standing.holders, key=lambda one: _loss(standing, one))
            if least != event.request_id:
                told = " and ".join(_told_loss(standing, one) for one in (event.request_id, least))
                yield request_name(event.request_id), f"retracted, yet {request_name(least)} has less to lose: {told}"
        standing.hear(event)


@invariant(When.STEP, needs=("requests",), on=(Retracted,))
def a_retraction_lets_the_others_go_on(change: Transition) -> Evidence:
    """Who gives way for want of pages makes room at once: whoever runs on is computed in that very step.

    Unless what was to be evicted next was still being copied to the host then.
    """
    computed, waits = set[int](), False
    backups = {view.id for view in change.before.transfers or () if view.to_host}
    for event in change.events:
        if isinstance(event, Retracted):
            computed.clear()
        elif isinstance(event, Launched):
            computed.update(entry[0] for entry in event.entries)
        elif isinstance(event, TransferBegan) and event.to_host:
            backups.add(event.transfer)
        elif isinstance(event, TransferEnded):
            backups.discard(event.transfer)
        elif isinstance(event, Evicted):
            freed = dict(event.freed)
            waits = bool(backups) and any(freed.get(pool, 0) < count for pool, count in event.need)
    for request in change.after.requests or () if not waits else ():
        if request.place == RUNNING and request.id not in computed:
            yield request_name(request.id), "runs on, yet no pass since the retraction computes anything for it"


@invariant(When.STEP, needs=PLANNED_BY, given=preemption_can_be_foretold)
def who_is_first_gets_the_place_of_the_less_important(change: Transition) -> Evidence:
    """Who waits first and lacks a row alone preempts one who runs and is less important by more than the threshold."""
    found = rivalry(change.before, change.events, change.reference.tokens_of)
    if found is not None and not change.events_of(Preempted):
        beside = ", ".join(map(request_name, found.lesser))
        yield request_name(found.first), f"waits for a row alone, yet {beside} of less importance goes on"


@invariant(When.OP, needs=("requests", "records"), on=(Preempted,))
def preemption_serves_the_more_important(change: Transition) -> Evidence:
    """Who runs gives way only to one who waits, is more important by more than the threshold and is admitted at once.

    And nobody who is less important goes on.
    """
    threshold = change.after.limits.preemption_threshold
    admitted: set[int] = set()
    for event in reversed(change.events):
        if isinstance(event, (Admitted, LoadPlanned)):
            admitted.add(event.request_id)
        elif isinstance(event, Preempted):
            why = _why_not_preempted(change, event, threshold, admitted)
            if why:
                yield request_name(event.request_id), f"preempted for {request_name(event.by)}, yet {why}"


@invariant(When.OP, needs=("records",), on=(Retracted, Preempted, RanOut, GaveWay, Failed))
def retracted_requests_hold_nothing(change: Transition) -> Evidence:
    """Who was put back has no record, no row and no page, until it is admitted again.

    What a pass in flight still reads or writes for it waits behind a fence, which is nobody's.
    """
    left: dict[int, str] = {}
    for event in change.events:
        if isinstance(event, (Retracted, Preempted, RanOut, GaveWay)):
            left[event.request_id] = PUT_BACK.get(type(event), "put back")
        elif isinstance(event, Failed):
            failed = [one.request_id for one in change.landings if one.failed and one.launch == event.launch]
            left |= dict.fromkeys(failed, "put back")
        elif isinstance(event, (Admitted, LoadPlanned)):
            left.pop(event.request_id, None)
    for request, how in left.items():
        yield from _remains(change.after, request, how)


@invariant(When.OP, on=(Finished,))
def finished_requests_hold_nothing(change: Transition) -> Evidence:
    """Who has finished is in no queue and has no record, no row and no page."""
    for event in change.events_of(Finished):
        if event.request_id in change.after.request_by_id:
            place = change.after.request_by_id[event.request_id].place
            yield request_name(event.request_id), f"finished ({event.reason}), yet it is {place}"
        yield from _remains(change.after, event.request_id, "finished")


@invariant(When.OP, needs=("records",), on=(Finished,))
def only_who_cannot_go_on_runs_out_of_memory(change: Transition) -> Evidence:
    """A request is ended for want of memory only if its next token would not fit pools that it had for itself.

    What outsiders hold is not to be had; a windowed pool must have room for a window and a page on either side.
    """
    for event in change.events_of(Finished):
        record = change.before.record_by_request.get(event.request_id)
        if event.reason.startswith(OUT_OF_MEMORY) and record is not None:
            length = record.launched_len + change.accepted.get(event.request_id, 0)
            short = [*_too_small(change.before, length + 1)]
            if not short:
                yield request_name(event.request_id), f"ended ({event.reason}) at {length} tokens"


@invariant(When.OP, needs=("requests", "launches"), on=(Failed,))
def failed_passes_are_retried_or_given_up(change: Transition) -> Evidence:
    """Whoever was in a pass that failed is computed again, or ends once it may be retried no more, and not before."""
    most = change.after.limits.max_forward_retries
    ended = {event.request_id: event.reason for event in change.events_of(Finished)}
    for landing in change.landings:
        if landing.failed:
            earlier = change.before.request_by_id.get(landing.request_id)
            failures = 1 + (earlier.num_failures if earlier is not None else 0)
            later, reason = change.after.request_by_id.get(landing.request_id), ended.get(landing.request_id)
            subject, was_in = request_name(landing.request_id), f"{failures} passes with it have failed"
            if later is None and reason is None:
                yield subject, f"{was_in}, and it is gone without an end"
            elif later is not None and later.num_failures != failures:
                yield subject, f"{was_in}, {later.num_failures} are counted"
            elif later is not None and most is not None and failures > most:
                yield subject, f"{was_in}, at most {most} may, yet it is {later.place}"
            elif reason is not None and reason.startswith(FORWARD_FAILED) and (most is None or failures <= most):
                yield subject, f"ended ({reason}), yet {was_in}, and {most} may"


def _unnecessary(change: Transition, event: Retracted, stock: Stock, gone: Set[int]) -> Evidence:
    """What should have been done instead of the retraction, as far as the facts before and after show."""
    subject = request_name(event.request_id)
    short = [pool for pool, count in event.need if count > 0]
    need = _decode_need(change, gone)
    if not any(count > stock.free.get(pool, 0) for pool, count in need.items()):
        wanted = ", ".join(f"{count} of {pool} with {stock.free.get(pool, 0)} free" for pool, count in need.items())
        yield subject, f"retracted, yet the next decode step needs {wanted}"
    for pool in short:
        if stock.waiting(pool):
            yield subject, f"retracted for {pool}, yet {stock.waiting(pool)} wait for passes in flight"
    yield from _dead_pages_left(change, subject, short)
    touched = {node.id for lock in change.events_of(Locked) for node in change.after.path(lock.node)}
    for index, component in enumerate(change.before.components):
        for node in change.before.nodes or () if component.pool in short else ():
            later = change.after.node_by_id.get(node.id)
            idle = later is not None and later.live[index] and not later.locks[index] and node.id not in touched
            if idle and node.live[index] and not node.locks[index]:
                yield subject, f"retracted for {component.pool}, yet {node_name(node.id)} could be evicted"


def _loss(standing: Standing, request_id: int) -> tuple[int, int, int, int]:
    """Who has the lower one has less to lose by a retraction."""
    request = standing.requests[request_id]
    return request.priority, standing.outputs[request_id], -request.prompt_len, -request_id


def _told_loss(standing: Standing, request_id: int) -> str:
    request, outputs = standing.requests[request_id], standing.outputs[request_id]
    return f"priority {request.priority}, {outputs} outputs, prompt_len {request.prompt_len}"


def _decode_need(change: Transition, gone: Set[int]) -> dict[str, int]:
    """Pages that one more token of each running request, and its lookahead, take from each pool."""
    before = change.before
    page_size, lookahead = before.limits.page_size, before.limits.lookahead_len
    running = [request for request in before.requests or () if request.place == "running" and request.id not in gone]
    count = 0
    for request in running:
        if (record := before.record_by_request.get(request.id)) is not None:
            reach = record.launched_len + change.accepted.get(request.id, 0) + 1 + lookahead
            count += max(0, -(-reach // page_size) - -(-record.allocated_len // page_size))
    for event in change.events_of(TakenOver):
        if event.request_id not in gone:
            count += -(-(event.length + 1 + lookahead) // page_size) - -(-event.length // page_size)
    need: dict[str, int] = {}
    for component in before.components:
        need[component.pool] = need.get(component.pool, 0) + count
    return need


def _dead_pages_left(change: Transition, subject: str, short: list[str]) -> Evidence:
    page_size = change.before.limits.page_size
    for pool, window, _ in change.before.components:
        for request_id, record in change.after.record_by_request.items() if pool in short else ():
            earlier = change.before.record_by_request.get(request_id)
            if window is None or earlier is None or earlier.row != record.row:
                continue
            dead_below = window_frontier(earlier.committed_len, window, page_size)
            if dead_below > max(record.frontier, record.protected_len):
                kept = f"{record.owner} kept its pages up to {dead_below}, frontier {record.frontier}"
                yield subject, f"retracted for {pool}, yet {kept}"


def _why_not_preempted(change: Transition, event: Preempted, threshold: int | None, admitted: Set[int]) -> str:
    """What is wrong with a preemption; empty where nothing is."""
    victim, by = (change.before.request_by_id.get(one) for one in (event.request_id, event.by))
    if threshold is None:
        return "nobody may be preempted"
    if victim is None or victim.place == "waiting":
        return "it did not run"
    if by is None or by.place != "waiting":
        return "that does not wait"
    if by.priority <= victim.priority + threshold:
        return f"its priority is {victim.priority}, that of the other {by.priority}, the threshold {threshold}"
    if by.id not in admitted:
        return "that was not admitted"
    spared = [request.id for request in change.before.requests or () if _was_spared(change, request, victim)]
    return f"{request_name(spared[0])} is less important and goes on" if spared else ""


def _was_spared(change: Transition, request: RequestView, victim: RequestView) -> bool:
    """Does somebody less important than a victim go on, who would have given back more than it in every pool?

    Who has little to give may be spared: a preemption takes nobody without whom the others do.
    """
    if request.place != "running" or request.priority >= victim.priority or request.id in change.put_back:
        return False
    given = change.before.record_by_request.get(victim.id)
    kept = [snapshot.record_by_request.get(request.id) for snapshot in (change.before, change.after)]
    left = [one.max_new_tokens - one.num_outputs for one in (request, victim)]
    if given is None or left[0] < left[1]:
        return False
    return all(
        record is not None
        and _num_units(record, index, record.protected_len // change.before.limits.page_size)
        > _num_units(given, index, 0)
        for record in kept
        for index in range(len(given.units))
    )


def _num_units(record: RecordView, component: int, first: int) -> int:
    """Units that a record names in a component, from page index `first` on."""
    return sum(unit != 0 for unit in record.units[component][first:])


def _too_small(snapshot: Snapshot, length: int) -> Iterator[str]:
    """The pools in which one request of `length` tokens and its lookahead would not fit alone."""
    page_size, lookahead = snapshot.limits.page_size, snapshot.limits.lookahead_len
    for component in snapshot.components:
        pool = snapshot.pool_by_name[component.pool]
        outside = sum(len(holding.units) for holding in pool.holdings if holding.owner.kind == OUTSIDE_KIND)
        needed = -(-(length + lookahead) // page_size)
        if component.window is not None:
            needed = kept_len(component.window, page_size) // page_size + 2 - (-lookahead // page_size)
        if needed > pool.capacity - outside:
            yield pool.name


def _remains(snapshot: Snapshot, request_id: int, what: str) -> Evidence:
    owner = Owner(REQUEST_KIND, request_id)
    if request_id in snapshot.record_by_request:
        yield str(owner), f"{what}, yet it has a record in row {snapshot.record_by_request[request_id].row}"
    for pool in snapshot.pools:
        units = [unit for holding in pool.holdings if holding.owner == owner for unit in holding.units]
        if units:
            yield str(owner), f"{what}, yet it owns {units_of(pool, units)}"
