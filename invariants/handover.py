"""Two engines serve a request: what one reserves for it, what goes over, and how what is held for that ends."""

from collections.abc import Iterable, Sequence

from invariants.events import Filled, Finished, HandedOver, LetGo, Refused, Reserved, Sent, SetAside, Taken, TakenOver
from invariants.invariant import invariant
from invariants.limits import DECODE
from invariants.transition import Transition, When
from invariants.view import HANDOVER_KIND, OUTSIDE_KIND, Owner, RecordView, Snapshot
from invariants.violation import Evidence
from invariants.windows import first_needed_page, goes_on_at
from invariants.wording import request_name, units_of

LINKED = "linked"  # the place of who waits for another engine


def is_an_empty_decode_side(change: Transition) -> bool:
    """A step of one in which nobody has anything, nor did anybody who is gone leave something behind."""
    before = change.before
    is_empty = not (before.records or before.launches or before.has_fences)
    is_shared = any(holding.owner.kind == OUTSIDE_KIND for pool in before.pools for holding in pool.holdings)
    is_at_work = change.when is When.STEP and not before.is_paused
    return change.after.limits.role == DECODE and is_at_work and is_empty and not is_shared


@invariant(When.OP, on=(Reserved,))
def a_decode_side_takes_what_it_lacks(change: Transition) -> Evidence:
    """Of a prompt that is computed elsewhere it takes the pages behind what it has; in a window those of the tail."""
    page_size = change.after.limits.page_size
    for event in change.events_of(Reserved):
        owner = Owner(HANDOVER_KIND, event.request_id)
        taken = [one for one in change.events_of(Taken) if one.owner == owner]
        for pool, window, _ in change.after.components:
            first = event.prefix_len // page_size
            if window is not None:
                first = max(first, first_needed_page(event.length, window, page_size))
            want, got = -(-event.length // page_size) - first, sum(len(one.units) for one in taken if one.pool == pool)
            if got != want or dict(event.pages).get(pool) != want:
                said = f"said {dict(event.pages).get(pool)}, took {got}"
                yield request_name(event.request_id), f"{said} of {pool} for {event.length} tokens, lacks {want}"


@invariant(When.OP, needs=("requests", "records"), given=is_an_empty_decode_side)
def an_empty_decode_side_makes_room(change: Transition) -> Evidence:
    """Who waits for room in an engine where nobody has anything gets it in the next step."""
    waiting = [request for request in change.before.requests or () if request.place == LINKED]
    is_short = any(event.want <= event.free for event in change.events_of(Refused))  # of memory behind free pages
    if waiting and not is_short and not change.events_of(Reserved):
        still = [one for one in waiting if one.id in change.after.request_by_id]
        if len(still) == len(waiting):
            yield request_name(still[0].id), "waits for room, yet nobody has any"


@invariant(When.OP, needs=("records",), on=(Sent,))
def what_is_sent_is_held(change: Transition) -> Evidence:
    """The pages that go to the other side are those which the request has in these places."""
    for event in change.events_of(Sent):
        owners = [Owner("request", event.request_id), Owner(HANDOVER_KIND, event.request_id)]
        found = [
            record
            for snapshot in (change.before, change.after)
            for record in snapshot.records or ()
            if record.owner in owners
        ]
        held = [
            _at(change.after, record, event.pool, range(event.first, event.first + len(event.pages)))
            for record in found
        ]
        if tuple(event.pages) not in held:
            named = units_of(change.after.pool(event.pool), event.pages)
            yield request_name(event.request_id), f"sent {named} from page {event.first} on, which it has not there"


@invariant(When.OP, needs=("records",), on=(Filled,))
def what_comes_fills_what_is_reserved(change: Transition) -> Evidence:
    """Pages that come from the other side are written to those which were reserved for them, and to no others."""
    reserved = {event.request_id for event in change.events_of(Reserved)}
    for event in change.events_of(Filled):
        record = _transfers(change.before).get(event.request_id) or _transfers(change.after).get(event.request_id)
        named = units_of(change.after.pool(event.pool), event.pages)
        if record is None and event.request_id not in reserved:
            yield request_name(event.request_id), f"{named} filled, yet nothing is reserved for it"
        elif record is not None and _own_at(change.after, record, event.pool, event.places) != event.pages:
            yield request_name(event.request_id), f"{named} filled, which is not reserved for these places"


@invariant(When.OP, needs=("records",))
def transfers_end_in_the_open(change: Transition) -> Evidence:
    """What is held for a transfer stays until it is taken over or let go of, and then nothing is left of it."""
    before, after = _transfers(change.before), _transfers(change.after)
    ended = {one.request_id for one in change.events_of(LetGo)} | {
        one.request_id for one in change.events_of(TakenOver)
    }
    began = {one.request_id for one in change.events_of(HandedOver)}
    began.update(one.request_id for one in change.events_of(Reserved))
    for request_id, record in before.items():
        later = after.get(request_id)
        if later is None and request_id not in ended:
            yield str(record.owner), "is gone, and was neither taken over nor let go of"
        elif later is not None and request_id not in ended:
            held, holds = _needed(change.before, record), _needed(change.after, later)
            if held != holds:
                yield str(record.owner), f"holds {holds}, it held {held}"
    for request_id, record in after.items():
        if request_id not in before and request_id not in began:
            yield str(record.owner), "is there, and nobody has told of it"
    for request_id in sorted(ended - began):
        owner = Owner(HANDOVER_KIND, request_id)
        for view in change.after.pools:
            left = [unit for holding in view.holdings if holding.owner == owner for unit in holding.units]
            if left:
                yield str(owner), f"has ended, and has left {units_of(view, left)}"


@invariant(When.OP, needs=("requests",), on=(TakenOver,))
def what_is_taken_over_was_computed(change: Transition) -> Evidence:
    """A request goes on behind its prompt, or behind all that was said of it but the newest token."""
    for event in change.events_of(TakenOver):
        request = change.before.request_by_id.get(event.request_id)
        if request is not None:
            computed = request.prompt_len + max(0, request.num_outputs - 1)
            if event.length != computed:
                yield request_name(event.request_id), f"taken over at {event.length}, yet {computed} are computed of it"
            if event.tokens and request.num_outputs:
                said = f"{len(event.tokens)} and {request.num_outputs} output tokens"
                yield request_name(event.request_id), f"taken over with {said}, of which the first were known"


@invariant(When.OP, needs=("requests", "records"), on=(Reserved,))
def room_is_made_in_order(change: Transition) -> Evidence:
    """Who came first gets room first; who gave its room up before is first of all."""
    reserved = [event.request_id for event in change.events_of(Reserved)]
    has_room = {*reserved, *_transfers(change.before)}
    for request in change.before.requests or ():
        if request.place == LINKED and request.id not in has_room and request.id in change.after.request_by_id:
            newcomers = [one for one in reserved if not _outputs(change.before, one)]
            later = newcomers if request.num_outputs else [one for one in newcomers if one > request.id]
            if later:
                yield request_name(request.id), f"waits for room, yet {request_name(later[0])} got some"


@invariant(When.OP, needs=("requests", "records"), on=(SetAside,))
def who_is_set_aside_waits_for_room(change: Transition) -> Evidence:
    """A request whose KV was set aside is not lost: it waits for room again, has it, or has ended."""
    ended = {event.request_id for event in change.events_of(Finished)}
    for event in change.events_of(SetAside):
        request = change.after.request_by_id.get(event.request_id)
        place = request.place if request is not None else "nowhere"
        if place not in (LINKED, "running") and (request is not None or event.request_id not in ended):
            yield request_name(event.request_id), f"was set aside, and is {place}"


def _transfers(snapshot: Snapshot) -> dict[int, RecordView]:
    return {record.owner.id: record for record in snapshot.records or () if record.owner.kind == HANDOVER_KIND}


def _needed(snapshot: Snapshot, record: RecordView) -> dict[str, list[int]]:
    """By pool the units that whoever goes on behind all of it reads."""
    needed: dict[str, list[int]] = {}
    for component, units in zip(snapshot.components, record.units, strict=True):
        first = 0
        if component.window is not None:
            first = first_needed_page(goes_on_at(record), component.window, snapshot.limits.page_size)
        needed[component.pool] = list(units[first:])
    return needed


def _own_at(snapshot: Snapshot, record: RecordView, pool: str, places: Sequence[int]) -> tuple[int, ...]:
    """The same of what is not shared with the tree."""
    first = record.protected_len // snapshot.limits.page_size
    return _at(snapshot, record, pool, [place for place in places if place >= first])


def _outputs(snapshot: Snapshot, request_id: int) -> int:
    request = snapshot.request_by_id.get(request_id)
    return request.num_outputs if request is not None else 0


def _at(snapshot: Snapshot, record: RecordView, pool: str, places: Iterable[int]) -> tuple[int, ...]:
    """The units that a record has in one pool at these page indices."""
    index = next(index for index, component in enumerate(snapshot.components) if component.pool == pool)
    units = record.units[index]
    return tuple(units[place] for place in places if place < len(units))
