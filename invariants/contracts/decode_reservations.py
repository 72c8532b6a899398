"""A decode engine reserves exactly the missing pages of a transfer, without delay, for swapped-out requests first.

On a server: A decode server takes more pages than it needs, or lets a prompt wait although it is empty: in the end it
stops answering.
"""

from swarden.invariants.events import OUTSIDE_KIND, Refused, Reserved
from swarden.invariants.invariant import invariant
from swarden.invariants.kinds import Place
from swarden.invariants.laws.lifecycle.handover import missing_pages, pages_taken_for
from swarden.invariants.limits import DECODE
from swarden.invariants.transition import Transition, When
from swarden.invariants.view import Snapshot
from swarden.invariants.violation import Code, Evidence, found, request_ref


class DecodeReservationsCode(Code):
    TOO_MANY = "{taken} units of {pool} taken for {length} tokens, but {missing} are needed"
    EMPTY_ENGINE_WAITS = "waits for pages, but the engine is empty"
    OVERTAKEN = "waits for pages, but {by} got pages before it"


def is_empty_decode_engine(change: Transition) -> bool:
    """Is the change a step of an unpaused decode engine in which no pages were in use or fenced before?"""
    before = change.before
    is_active = change.after.limits.role == DECODE and change.when is When.STEP and not before.is_paused
    is_empty = is_active and not (before.records or before.launches or before.has_fences)
    return is_empty and not any(
        holding.owner.kind == OUTSIDE_KIND for pool in before.pools for holding in pool.holdings
    )


@invariant(When.OP, needs=("Taken",), on=(Reserved,))
def decode_reserves_only_missing_pages(change: Transition) -> Evidence:
    """A decode engine takes only the pages for a transfer that the prompt lacks beside its cached prefix."""
    for event in change.events_of(Reserved):
        taken = pages_taken_for(change, event.request_id)
        for pool, count in missing_pages(change.after, event).items():
            if taken[pool] > count:
                values = {"pool": pool, "taken": taken[pool], "missing": count, "length": event.length}
                yield found(request_ref(event.request_id), DecodeReservationsCode.TOO_MANY, **values)


@invariant(When.OP, needs=("requests", "records", "Reserved", "Refused"), given=is_empty_decode_engine)
def empty_decode_engine_reserves_at_once(change: Transition) -> Evidence:
    """A request that waits for pages of an empty decode engine gets them in the next step."""
    waiting = [request for request in change.before.requests or () if request.place == Place.LINKED]
    is_short = any(event.want <= event.free for event in change.events_of(Refused))  # no memory for the free pages
    if waiting and not is_short and not change.events_of(Reserved):
        still = [request for request in waiting if request.id in change.after.request_by_id]
        if len(still) == len(waiting):
            yield found(request_ref(still[0].id), DecodeReservationsCode.EMPTY_ENGINE_WAITS)


@invariant(When.OP, needs=("requests", "records"), on=(Reserved,))
def reservations_follow_arrival_order(change: Transition) -> Evidence:
    """No request without output gets pages while an earlier one, or a swapped-out request, gets none in the step.

    Swapped-out requests are not compared with each other.
    """
    reserved = [event.request_id for event in change.events_of(Reserved)]
    has_pages = {*reserved, *change.before.transfer_records}
    for request in change.before.requests or ():
        if request.place == Place.LINKED and request.id not in has_pages and request.id in change.after.request_by_id:
            newcomers = [request_id for request_id in reserved if not _outputs(change.before, request_id)]
            later = newcomers if request.num_outputs else [id for id in newcomers if id > request.id]
            if later:
                values = {"by": request_ref(later[0])}
                yield found(request_ref(request.id), DecodeReservationsCode.OVERTAKEN, **values)


def _outputs(snapshot: Snapshot, request_id: int) -> int:
    request = snapshot.request_by_id.get(request_id)
    return request.num_outputs if request is not None else 0
