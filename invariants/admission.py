"""What is promised to a request, who is next, and what is refused at arrival."""

from collections.abc import Sequence

from invariants.events import (
    Admitted,
    Failed,
    Finished,
    Freed,
    Launched,
    LoadPlanned,
    Parked,
    Preempted,
    RanOut,
    Refused,
    Rejected,
    Retracted,
    Taken,
    TransferBegan,
    TransferEnded,
)
from invariants.invariant import invariant
from invariants.kinds import FreeCause
from invariants.limits import ARRIVAL, PRIORITY
from invariants.planning import Stretch, verdicts_on
from invariants.transition import Transition, When
from invariants.view import LOAD_KIND, REQUEST_KIND, RequestView, Snapshot
from invariants.violation import Evidence
from invariants.wording import request_name

WAITING = "waiting"
PUT_SHORT = (Parked, RanOut, Retracted, Preempted, Failed)  # with one of these in a step nothing was to spare
SPARE_PAGES = 2  # of each pool: a stretch may begin and end inside a page


PLANNED_BY = ("nodes", "receipts", "records", "requests", "claims", "launches")


def demand_is_known(change: Transition) -> bool:
    """Can what is admitted be foretold?"""
    return change.after.limits.estimates is not None and change.before.limits == change.after.limits


def order_is_known(change: Transition) -> bool:
    return bool(change.after.limits.waits_by)


@invariant(When.OP, on=(Admitted,))
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
            elif event.pool in pools and isinstance(event, Freed) and event.cause == FreeCause.ROLLED_BACK:
                book[event.pool] = book.get(event.pool, 0) + len(event.units)


@invariant(When.OP, on=(Admitted, Launched, LoadPlanned, RanOut))
def admitted_work_never_runs_out(change: Transition) -> Evidence:
    """Pages that were promised are there when they are taken; a pool that refuses though it has them is a fault.

    So is a host that has not answered yet while what was to be evicted is being backed up.
    """
    backups = set[int]()  # those that began in this step and are under way
    for event in change.events:
        if isinstance(event, TransferBegan) and event.to_host:
            backups.add(event.transfer)
        elif isinstance(event, TransferEnded):
            backups.discard(event.transfer)
        elif isinstance(event, RanOut) and event.want > event.free and not backups:
            yield request_name(event.request_id), f"promised {event.want} of {event.pool}, {event.free} were free"
        elif isinstance(event, Refused) and event.owner.kind == LOAD_KIND and event.want > event.free and not backups:
            yield str(event.owner), f"promised {event.want} of {event.pool}, {event.free} were free"


@invariant(When.OP, needs=("requests",), on=(Admitted, LoadPlanned), given=order_is_known)
def nobody_is_passed_over(change: Transition) -> Evidence:
    """Whoever is admitted from the queue was first of those who waited in it: who does not fit holds up the others.

    Who was put back in this very step stands in the queue from the next one on.
    """
    waits_by = change.after.limits.waits_by
    waiting = {request.id: request for request in change.before.requests or () if request.place == WAITING}
    for event in change.events:
        if isinstance(event, (Admitted, LoadPlanned, Finished)):
            one = waiting.pop(event.request_id, None)
            if one is not None and not isinstance(event, Finished):
                ahead = min(waiting.values(), key=lambda other: _turn(other, waits_by), default=one)
                if _turn(ahead, waits_by) < _turn(one, waits_by):
                    passed = f"{request_name(ahead.id)} of priority {ahead.priority}"
                    yield request_name(one.id), f"admitted with priority {one.priority}, yet {passed} waits before it"


@invariant(When.STEP, needs=PLANNED_BY, given=demand_is_known)
def what_is_promised_is_what_is_needed(change: Transition) -> Evidence:
    """A request is admitted for as much, and is promised as many pages of each pool, as a naive planner says."""
    for verdict in change.once(verdicts_on):
        found, foretold = verdict.found, verdict.foretold
        if found is not None and foretold is not None and found != foretold:
            yield request_name(verdict.request_id), f"admitted for {_told(found)}, yet it needs {_told(foretold)}"


@invariant(When.STEP, needs=PLANNED_BY, given=demand_is_known)
def who_is_next_is_admitted_if_it_fits(change: Transition) -> Evidence:
    """Whoever is admitted fits, by a naive planner, and whoever is next and was not admitted does not."""
    for verdict in change.once(verdicts_on):
        if verdict.found is None and verdict.foretold is not None:
            yield request_name(verdict.request_id), f"waits, yet there is room for {_told(verdict.foretold)}"
        elif verdict.found is not None and verdict.foretold is None:
            yield request_name(verdict.request_id), f"admitted for {_told(verdict.found)}, yet it does not fit"


@invariant(When.OP, needs=("requests", "records"), on=(Launched,))
def free_places_are_filled(change: Transition) -> Evidence:
    """With a place free, and room for all that everybody there may ever come to need, nobody waits.

    Judged where a pass was launched that has tokens to spare, and nobody was put back or parked.
    """
    waiting = [request for request in change.before.requests or () if request.place == WAITING]
    still = [request for request in waiting if _waits_still(change, request)] if waiting else []
    if still and _has_tokens_to_spare(change) and _has_a_place(change) and has_room_for_all(change.before):
        running = [request for request in change.before.requests or () if request.place != WAITING]
        beside = f"{len(running) + len(waiting) - len(still)} of {change.after.limits.max_running_requests} places"
        yield request_name(still[0].id), f"waits, yet it fits, and {beside} are taken"


@invariant(When.OP, on=(Rejected,))
def only_the_impossible_is_rejected(change: Transition) -> Evidence:
    """A request is rejected only if it could not run on an empty engine."""
    for event in change.events_of(Rejected):
        if not _why_impossible(change.after, event.prompt_len, event.max_new_tokens):
            asked = f"prompt_len {event.prompt_len}, max_new_tokens {event.max_new_tokens}"
            yield request_name(event.request_id), f"rejected ({event.reason}), yet {asked} fits an empty engine"


@invariant(When.OP, needs=("requests",))
def the_impossible_is_rejected(change: Transition) -> Evidence:
    """A request that could not run even on an empty engine is rejected at arrival and never waits."""
    known = change.before.request_by_id
    for request in change.after.requests or ():
        if request.id not in known:
            reason = _why_impossible(change.after, request.prompt_len, request.max_new_tokens)
            if reason:
                yield request_name(request.id), f"is {request.place}, yet {reason}"


def _turn(request: RequestView, waits_by: Sequence[str]) -> tuple[int, int]:
    """Who has the lower one is next, as far as the queue is ordered by what is known."""
    return (-request.priority if PRIORITY in waits_by else 0, request.id if ARRIVAL in waits_by else 0)


def _told(stretch: Stretch) -> str:
    need = ", ".join(f"{count} to {stretch.need.demand[pool]} of {pool}" for pool, count in stretch.need.firm.items())
    return f"[{stretch.start}, {stretch.end}) with {need}"


def _waits_still(change: Transition, request: RequestView) -> bool:
    later = change.after.request_by_id.get(request.id)
    return later is not None and later.place == WAITING and request.id not in change.admitted


def _has_tokens_to_spare(change: Transition) -> bool:
    """Does the step's pass compute less than it might, with no chunk cut and nobody short of anything?"""
    if any(change.events_of(kind) for kind in PUT_SHORT) or _has_chunk(change.after):
        return False
    chunk_len = change.after.limits.chunk_len
    computed = [sum(end - start for _, start, end in event.entries) for event in change.events_of(Launched)]
    return chunk_len is None or all(count < chunk_len for count in computed)


def _has_chunk(snapshot: Snapshot) -> bool:
    return any(request.place == "chunked" for request in snapshot.requests or ())


def _has_a_place(change: Transition) -> bool:
    """Was a place left, of those that were free before the step?"""
    before = change.before
    held = before.record_by_request
    begun = change.admitted | {event.request_id for event in change.events_of(LoadPlanned)}
    num_new = sum(request.id in begun and request.id not in held for request in before.requests or ())
    rows = [len(pool.free) for pool in before.pools if pool.unit == "row"]
    return all(num_new < count for count in [*rows, before.limits.max_running_requests - len(held)])


def has_room_for_all(before: Snapshot) -> bool:
    """Is more free than everybody who is there would take on the way to its longest?"""
    page_size, num_pages = before.limits.page_size, 0
    for request in before.requests or ():
        longest = request.prompt_len + request.max_new_tokens + before.limits.lookahead_len
        record = before.record_by_request.get(request.id)
        held = record.allocated_len if record is not None else 0
        num_pages += max(0, longest - held) // page_size - (-before.limits.lookahead_len // page_size) + SPARE_PAGES
    shares: dict[str, int] = {}
    for component in before.components:
        shares[component.pool] = shares.get(component.pool, 0) + num_pages
    return all(len(before.pool(pool).free) >= count for pool, count in shares.items())


def _why_impossible(snapshot: Snapshot, prompt_len: int, max_new_tokens: int) -> str | None:
    """Rule 11: a request must fit its row, and its prompt and one token every pool that keeps whole prefixes.

    Both with the lookahead.
    """
    limits = snapshot.limits
    if not prompt_len:
        return "its prompt is empty"
    if prompt_len + max_new_tokens + limits.lookahead_len > limits.max_context_len:
        more = f" + {limits.lookahead_len}" if limits.lookahead_len else ""
        return f"{prompt_len} + {max_new_tokens}{more} tokens are more than max_context_len {limits.max_context_len}"
    needed = -(-(prompt_len + 1 + limits.lookahead_len) // limits.page_size)
    for component in snapshot.components:
        capacity = snapshot.pool(component.pool).capacity
        if component.window is None and needed > capacity:
            return f"its prompt needs {needed} pages of {component.pool}, which has {capacity}"
    return None
