"""What is promised to a request, what is refused at arrival, and who has to give way."""

from collections.abc import Iterator

from invariants.base import Evidence, Transition, When, invariant
from invariants.events import Admitted, Finished, Freed, Launched, Locked, RanOut, Rejected, Retracted, Taken
from invariants.pools import ROLLED_BACK
from invariants.view import OUTSIDE_KIND, Owner, RequestView, Snapshot
from invariants.windows import kept_len, window_frontier
from invariants.wording import node_name, request_name

REQUEST_KIND = "request"
OUT_OF_MEMORY = "out of memory"


@invariant(When.OP, covers=("ADMIT-SOUND", "BUDGET-COVER", "NO-CRASH"), on=(Admitted, Launched, RanOut))
def admitted_work_never_runs_out(change: Transition) -> Evidence:
    """Pages that were promised are there when they are taken; a pool that refuses though it has them is a fault."""
    for event in change.events_of(RanOut):
        if event.want > event.free:
            yield request_name(event.request_id), f"promised {event.want} of {event.pool}, {event.free} were free"


@invariant(When.OP, covers=("BUDGET-COVER", "ADMIT-SOUND"), on=(Admitted,))
def reservations_cover_what_is_taken(change: Transition) -> Evidence:
    """A request takes no more units of any pool in a step than were reserved for it."""
    pools = {component.pool for component in change.after.components}
    firm: dict[int, dict[str, int]] = {}
    for event in change.events:
        if isinstance(event, Admitted):
            book = firm.setdefault(event.request_id, {})
            for pool, count in event.firm:
                book[pool] = book.get(pool, 0) + count
        elif isinstance(event, (Taken, Freed)) and event.owner.kind == REQUEST_KIND and event.owner.id in firm:
            book = firm[event.owner.id]
            if event.pool in pools and isinstance(event, Taken):
                book[event.pool] = book.get(event.pool, 0) - len(event.units)
                if book[event.pool] < 0:
                    yield str(event.owner), f"took {-book[event.pool]} of {event.pool} more than were reserved"
            elif event.pool in pools and isinstance(event, Freed) and event.cause == ROLLED_BACK:
                book[event.pool] = book.get(event.pool, 0) + len(event.units)


@invariant(When.OP, covers=("REJECT-ONLY-IMPOSSIBLE",), on=(Rejected,))
def only_the_impossible_is_rejected(change: Transition) -> Evidence:
    """A request is rejected only if it could not run on an empty engine."""
    for event in change.events_of(Rejected):
        if not _why_impossible(change.after, event.prompt_len, event.max_new_tokens):
            asked = f"prompt_len {event.prompt_len}, max_new_tokens {event.max_new_tokens}"
            yield request_name(event.request_id), f"rejected ({event.reason}), yet {asked} fits an empty engine"


@invariant(When.OP, covers=("REJECT-ONLY-IMPOSSIBLE", "PROGRESS"), needs=("requests",))
def the_impossible_is_rejected(change: Transition) -> Evidence:
    """A request that could not run even on an empty engine is rejected at arrival and never waits."""
    known = change.before.request_by_id
    for request in change.after.requests or ():
        if request.id not in known:
            reason = _why_impossible(change.after, request.prompt_len, request.max_new_tokens)
            if reason:
                yield request_name(request.id), f"is {request.place}, yet {reason}"


@invariant(When.OP, covers=("RETRACT-NECESSARY",), needs=("nodes", "records", "requests"), on=(Retracted,))
def retraction_is_necessary(change: Transition) -> Evidence:
    """Nobody gives way while a pool could still give up pages that nobody has locked, or that are dead in a window.

    And the need of the next decode step is more than what is free.
    """
    free = {pool.name: len(pool.free) for pool in change.before.pools}
    gone: set[int] = set()
    for event in change.events:
        if isinstance(event, Taken) and event.pool in free:
            free[event.pool] -= len(event.units)
        elif isinstance(event, Freed) and event.pool in free and not event.after:
            free[event.pool] += len(event.units)
        elif isinstance(event, (Finished, Retracted)):
            if isinstance(event, Retracted):
                yield from _unnecessary(change, event, free, gone)
            gone.add(event.request_id)


@invariant(When.OP, covers=("RETRACT-STATE", "CURSOR"), needs=("records",), on=(Retracted,))
def retracted_requests_hold_nothing(change: Transition) -> Evidence:
    """Who was retracted has no record, no row and no page, until it is admitted again."""
    left: dict[int, bool] = {}
    for event in change.events:
        if isinstance(event, Retracted):
            left[event.request_id] = True
        elif isinstance(event, Admitted):
            left.pop(event.request_id, None)
    for request in left:
        yield from _remains(change.after, request, "retracted")


@invariant(When.OP, covers=("BATCH-WF", "ROW-POOL", "ONE-SHOT"), on=(Finished,))
def finished_requests_hold_nothing(change: Transition) -> Evidence:
    """Who has finished is in no queue and has no record, no row and no page."""
    for event in change.events_of(Finished):
        if event.request_id in change.after.request_by_id:
            place = change.after.request_by_id[event.request_id].place
            yield request_name(event.request_id), f"finished ({event.reason}), yet it is {place}"
        yield from _remains(change.after, event.request_id, "finished")


@invariant(When.OP, covers=("REJECT-ONLY-IMPOSSIBLE", "NO-CRASH", "PROGRESS"), needs=("records",), on=(Finished,))
def only_who_cannot_go_on_runs_out_of_memory(change: Transition) -> Evidence:
    """A request is ended for want of memory only if its next token would not fit pools that it had for itself.

    What outsiders hold is not to be had; a windowed pool must have room for a window and a page on either side.
    """
    for event in change.events_of(Finished):
        record = change.before.record_by_request.get(event.request_id)
        if event.reason.startswith(OUT_OF_MEMORY) and record is not None:
            short = [*_too_small(change.before, record.committed_len + 1)]
            if not short:
                yield request_name(event.request_id), f"ended ({event.reason}) at {record.committed_len} tokens"


def _too_small(snapshot: Snapshot, length: int) -> Iterator[str]:
    """The pools in which one request of `length` tokens would not fit alone."""
    page_size = snapshot.limits.page_size
    for component in snapshot.components:
        pool = snapshot.pool_by_name[component.pool]
        outside = sum(len(holding.units) for holding in pool.holdings if holding.owner.kind == OUTSIDE_KIND)
        needed = -(-length // page_size)
        if component.window is not None:
            needed = kept_len(component.window, page_size) // page_size + 2
        if needed > pool.capacity - outside:
            yield pool.name


def _remains(snapshot: Snapshot, request_id: int, what: str) -> Evidence:
    owner = Owner(REQUEST_KIND, request_id)
    if request_id in snapshot.record_by_request:
        yield str(owner), f"{what}, yet it has a record in row {snapshot.record_by_request[request_id].row}"
    for pool in snapshot.pools:
        units = [unit for holding in pool.holdings if holding.owner == owner for unit in holding.units]
        if units:
            yield str(owner), f"{what}, yet it owns {pool.name} {pool.unit}s {units}"


def _why_impossible(snapshot: Snapshot, prompt_len: int, max_new_tokens: int) -> str | None:
    """Rule 11: a request must fit its row, and its prompt and one token every pool that keeps whole prefixes."""
    limits = snapshot.limits
    if not prompt_len:
        return "its prompt is empty"
    if prompt_len + max_new_tokens > limits.max_context_len:
        return f"{prompt_len} + {max_new_tokens} tokens are more than max_context_len {limits.max_context_len}"
    needed = -(-(prompt_len + 1) // limits.page_size)
    for component in snapshot.components:
        capacity = snapshot.pool(component.pool).capacity
        if component.window is None and needed > capacity:
            return f"its prompt needs {needed} pages of {component.pool}, which has {capacity}"
    return None


def _unnecessary(change: Transition, event: Retracted, free: dict[str, int], gone: set[int]) -> Evidence:
    """What should have been done instead of the retraction, as far as the facts before and after show."""
    subject = request_name(event.request_id)
    short = [pool for pool, count in event.need if count > 0]
    need = _decode_need(change.before, gone)
    if not any(need > free.get(component.pool, 0) for component in change.before.components):
        counts = ", ".join(
            f"{component.pool} has {free.get(component.pool, 0)} free" for component in change.before.components
        )
        yield subject, f"retracted, yet the next decode step needs {need} pages and {counts}"
    touched = {node.id for lock in change.events_of(Locked) for node in change.after.path(lock.node)}
    for index, component in enumerate(change.before.components):
        if component.pool not in short:
            continue
        for node in change.before.nodes or ():
            later = change.after.node_by_id.get(node.id)
            idle = later is not None and later.live[index] and not later.locks[index] and node.id not in touched
            if idle and node.live[index] and not node.locks[index]:
                yield subject, f"retracted for {component.pool}, yet {node_name(node.id)} could be evicted"
        if component.window is not None:
            yield from _dead_pages_left(change, subject, component.window, component.pool)


def _decode_need(before: Snapshot, gone: set[int]) -> int:
    """Pages that one more token of each running request takes from every pool."""
    page_size, running = before.limits.page_size, before.requests or ()
    records = [before.record_by_request.get(request.id) for request in running if _runs(request, gone)]
    return sum(
        -(-(record.committed_len + 1) // page_size) > -(-record.allocated_len // page_size)
        for record in records
        if record is not None
    )


def _runs(request: RequestView, gone: set[int]) -> bool:
    return request.place == "running" and request.id not in gone


def _dead_pages_left(change: Transition, subject: str, window: int, pool: str) -> Evidence:
    page_size = change.before.limits.page_size
    for record in change.after.records or ():
        earlier = change.before.record_by_request.get(record.owner.id)
        if earlier is None or earlier.row != record.row:
            continue
        dead_below = window_frontier(earlier.committed_len, window, page_size)
        if dead_below > max(record.frontier, record.protected_len):
            kept = f"{record.owner} kept its pages up to {dead_below}, frontier {record.frontier}"
            yield subject, f"retracted for {pool}, yet {kept}"
