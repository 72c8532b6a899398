"""Transfers from a prefill to a decode engine: the reservation, the pages sent and filled, and the release.

The decode engine reports Reserved, Filled for pages that arrive, and TakenOver or LetGo.  The prefill engine reports
Invited, Sent for each part, HandedOver and LetGo.  From Reserved, or from HandedOver on, the owner "transfer" holds the
record; TakenOver gives it to the request, and LetGo frees it.  KV that was SetAside comes back in the same way.

On a server: The decode server reads pages that were not sent, or the prefill server frees pages that are still sent: a
wrong answer; or a transfer never ends, and its pages leak.
"""

from collections.abc import Iterable, Iterator, Sequence

import swarden.invariants.events as seen
from swarden.invariants.invariant import invariant
from swarden.invariants.kinds import Place
from swarden.invariants.transition import Transition, When
from swarden.invariants.view import RecordView, Snapshot
from swarden.invariants.violation import Code, Evidence, Ref, found, request_ref, unit_ref
from swarden.invariants.windows import first_needed_page, next_position

COMPUTES_PROMPTS = frozenset({Place.WAITING, Place.CHUNKED})


class HandoverCode(Code):
    RESERVED_TOO_FEW = "{taken} units of {pool} taken for {length} tokens, but {missing} are needed"
    RESERVATION_MISCOUNTED = "{taken} units of {pool} taken, but the event reports {reported}"
    SENT_FOREIGN_PAGES = "{pages} sent from page index {first} on, but it has other pages there"
    FILLED_WITHOUT_RESERVATION = "{pages} filled, but nothing is reserved"
    FILLED_OTHER_PLACES = "{pages} filled, but not reserved for these page indices"
    ENDED_UNREPORTED = "ended, but neither taken over nor released"
    BEGAN_UNREPORTED = "began without an event"
    AWAITS_OTHER_PAGES = "awaits {pages}, but its pages of {pool} for {length} tokens are others"
    TIMED_OUT_WITH_ALL = "ended because the other engine was silent, but all was sent, and every message was read"
    FAILED_ON_ONE_SIDE = "the other engine has given it up, and its KV is still awaited"
    NOT_TAKEN_OVER = "it was due before the step, and its KV is still awaited after it"
    PAGES_CHANGED = "{pool} pages changed from {was} to {now}"
    UNITS_LEFT = "ended, but still owns {units}"
    TAKEN_OVER_AT_WRONG_LEN = "taken over with the KV of {length} tokens, but {computed} are computed"
    KNOWN_OUTPUT_RESENT = "taken over with {num_tokens} output tokens, but {num_outputs} were known before"
    WAITS_FOR_PREFILL = "its KV was set aside, but it is {place}"
    LOST = "its KV was set aside, but it is in no queue and not finished"


def missing_pages(snapshot: Snapshot, event: seen.Reserved) -> dict[str, int]:
    """By pool, the pages that a transferred prompt needs beside its cached prefix; of a window only those read next."""
    page_size, missing = snapshot.limits.page_size, dict[str, int]()
    for component in snapshot.components:
        first = event.prefix_len // page_size
        if component.window is not None:
            first = max(first, first_needed_page(event.length, component.window, page_size))
        missing[component.pool] = missing.get(component.pool, 0) - (-event.length // page_size) - first
    return missing


def pages_taken_for(change: Transition, request_id: int) -> dict[str, int]:
    """By pool, the number of pages taken for the transfer of a request."""
    taken = {component.pool: 0 for component in change.after.components}
    for event in change.events_of(seen.Taken):
        if event.owner == (seen.HANDOVER_KIND, request_id) and event.pool in taken:
            taken[event.pool] += len(event.units)
    return taken


@invariant(When.OP, needs=("Taken",), on=(seen.Reserved,))
def reserved_pages_cover_the_prompt(change: Transition) -> Evidence:
    """A decode engine takes every page that a transferred prompt lacks, and reports as many as it takes."""
    for event in change.events_of(seen.Reserved):
        subject, reported = request_ref(event.request_id), dict(event.pages)
        taken = pages_taken_for(change, event.request_id)
        for pool, count in missing_pages(change.after, event).items():
            if taken[pool] < count:
                counts = {"taken": taken[pool], "missing": count, "length": event.length}
                yield found(subject, HandoverCode.RESERVED_TOO_FEW, pool=pool, **counts)
            if reported.get(pool) != taken[pool]:
                values = {"pool": pool, "reported": reported.get(pool), "taken": taken[pool]}
                yield found(subject, HandoverCode.RESERVATION_MISCOUNTED, **values)


@invariant(When.OP, needs=("records",), on=(seen.Sent,))
def sent_pages_are_held(change: Transition) -> Evidence:
    """Pages that are sent to the other engine are those that the request has at these page indices."""
    for event in change.events_of(seen.Sent):
        owners = [seen.Owner(seen.REQUEST_KIND, event.request_id), seen.Owner(seen.HANDOVER_KIND, event.request_id)]
        places = range(event.first, event.first + len(event.pages))
        held = [
            held
            for snapshot in (change.before, change.after)
            for record in snapshot.records or ()
            if record.owner in owners
            for held in _each_at(change.after, record, event.pool, places)
        ]
        if tuple(event.pages) not in held:
            values = {"pages": _page_refs(change.after, event), "first": event.first}
            yield found(request_ref(event.request_id), HandoverCode.SENT_FOREIGN_PAGES, **values)


@invariant(When.OP, needs=("records",), on=(seen.Filled,))
def filled_pages_were_reserved(change: Transition) -> Evidence:
    """KV that arrives from the other engine is written to the pages that were reserved for these page indices."""
    reserved = {event.request_id for event in change.events_of(seen.Reserved)}
    before, after = change.before.transfer_records, change.after.transfer_records
    for event in change.events_of(seen.Filled):
        record = before.get(event.request_id) or after.get(event.request_id)
        if record is None and event.request_id not in reserved:
            pages = _page_refs(change.after, event)
            yield found(request_ref(event.request_id), HandoverCode.FILLED_WITHOUT_RESERVATION, pages=pages)
        elif record is not None and _own_at(change.after, record, event.pool, event.places) != event.pages:
            pages = _page_refs(change.after, event)
            yield found(request_ref(event.request_id), HandoverCode.FILLED_OTHER_PLACES, pages=pages)


@invariant(When.OP, needs=("awaited", "records", "requests"))
def awaited_pages_are_due(change: Transition) -> Evidence:
    """A transfer awaits only those pages of its request that hold tokens which it lacks.

    The other engine sends no other pages, so the transfer would never be complete (vllm pull 50558).
    """
    after = change.after
    for request_id, awaited in (after.awaited or {}).items():
        request = after.request_by_id.get(request_id)
        record = after.transfer_records.get(request_id) or after.record_by_request.get(request_id)
        if request is not None:
            length = request.prompt_len + max(0, request.num_outputs - 1)
            for component, units, due in zip(after.components, awaited, _due(after, record, length), strict=True):
                if others := [unit for unit in units if not unit or unit not in due]:
                    pool = after.pool(component.pool)
                    pages = tuple(unit_ref(pool, unit) for unit in others)
                    values = {"pages": pages, "pool": component.pool, "length": length}
                    yield found(_transfer_ref(request_id), HandoverCode.AWAITS_OTHER_PAGES, **values)


@invariant(When.STEP, needs=("delivered",), on=(seen.Finished, seen.LetGo))
def delivered_transfers_never_time_out(change: Transition) -> Evidence:
    """No transfer ends by the peer timeout if all of its KV was sent, and each message has been read.

    Then both engines have all that they wait for, or one of them was sent too little.
    """
    ends = [(event.request_id, event.reason) for event in change.events_of(seen.Finished)]
    ends += [(event.request_id, event.cause) for event in change.events_of(seen.LetGo)]
    timed_out = {request_id for request_id, reason in ends if reason == seen.FinishReason.PEER_TIMEOUT}
    for request_id in sorted(timed_out & (change.before.delivered or frozenset())):
        yield found(_transfer_ref(request_id), HandoverCode.TIMED_OUT_WITH_ALL)


@invariant(When.STEP, needs=("awaited",), on=(seen.PeerGaveUp,))
def failed_transfers_end_on_both_sides(change: Transition) -> Evidence:
    """A decode engine awaits no KV of a transfer that the other engine has given up.

    It would keep the request and its pages until its time-out (sglang pull 30551).
    """
    for event in change.events_of(seen.PeerGaveUp):
        if event.request_id in (change.after.awaited or {}):
            yield found(_transfer_ref(event.request_id), HandoverCode.FAILED_ON_ONE_SIDE)


@invariant(When.STEP, needs=("awaited", "due_transfers"))
def due_transfers_are_taken_over(change: Transition) -> Evidence:
    """A decode engine awaits no KV of a transfer that was due before the step, unless it is paused.

    Such a transfer has arrived in full; an engine that does not take note of it lets its request wait forever.
    """
    before, after = change.before, change.after
    if before.due_transfers and after.awaited and not (before.is_paused or after.is_paused):
        for request_id in sorted(before.due_transfers & (before.awaited or {}).keys() & after.awaited.keys()):
            yield found(_transfer_ref(request_id), HandoverCode.NOT_TAKEN_OVER)


@invariant(When.OP, needs=("records", "Reserved", "HandedOver", "TakenOver", "LetGo"))
def transfers_keep_pages_until_released(change: Transition) -> Evidence:
    """A transfer holds its pages until it is taken over or released, and holds nothing afterwards.

    Windowed pages that the next token does not read may change.
    """
    before, after = change.before.transfer_records, change.after.transfer_records
    ended = {one.request_id for kind in (seen.LetGo, seen.TakenOver) for one in change.events_of(kind)}  # type: ignore[attr-defined]  # both events have a request_id
    began = {one.request_id for kind in (seen.HandedOver, seen.Reserved) for one in change.events_of(kind)}  # type: ignore[attr-defined]  # both events have a request_id
    for request_id in sorted(before.keys() - ended):
        if request_id not in after:
            yield found(_transfer_ref(request_id), HandoverCode.ENDED_UNREPORTED)
        else:
            yield from _changed_pages(change, before[request_id], after[request_id])
    for request_id in sorted(after.keys() - before.keys() - began):
        yield found(_transfer_ref(request_id), HandoverCode.BEGAN_UNREPORTED)
    for request_id in sorted(ended - began):
        owner = seen.Owner(seen.HANDOVER_KIND, request_id)
        for pool in change.after.pools:
            left = [unit for holding in pool.holdings if holding.owner == owner for unit in holding.units]
            if left:
                units = tuple(unit_ref(pool, unit) for unit in left)
                yield found(_transfer_ref(request_id), HandoverCode.UNITS_LEFT, units=units)


@invariant(When.OP, needs=("requests",), on=(seen.TakenOver,))
def taken_over_len_was_computed(change: Transition) -> Evidence:
    """A request is taken over with the KV of its prompt, or of its prompt and all of its output but the newest token.

    Output tokens come with it only if none were known before.
    """
    for event in change.events_of(seen.TakenOver):
        request = change.before.request_by_id.get(event.request_id)
        if request is not None:
            subject, computed = request_ref(event.request_id), request.prompt_len + max(0, request.num_outputs - 1)
            if event.length != computed:
                lengths = {"length": event.length, "computed": computed}
                yield found(subject, HandoverCode.TAKEN_OVER_AT_WRONG_LEN, **lengths)
            if event.tokens and request.num_outputs:
                counts = {"num_tokens": len(event.tokens), "num_outputs": request.num_outputs}
                yield found(subject, HandoverCode.KNOWN_OUTPUT_RESENT, **counts)


@invariant(When.OP, needs=("requests",), on=(seen.SetAside,))
def set_aside_requests_are_kept(change: Transition) -> Evidence:
    """A request whose KV was set aside waits for that KV, has it again, or has finished; it is not prefilled again."""
    ended = {event.request_id for event in change.events_of(seen.Finished)}
    for event in change.events_of(seen.SetAside):
        request = change.after.request_by_id.get(event.request_id)
        if request is None and event.request_id not in ended:
            yield found(request_ref(event.request_id), HandoverCode.LOST)
        elif request is not None and request.place in COMPUTES_PROMPTS:
            yield found(request_ref(event.request_id), HandoverCode.WAITS_FOR_PREFILL, place=request.place)


def _transfer_ref(request_id: int) -> Ref:
    return Ref(seen.HANDOVER_KIND, request_id)


def _due(snapshot: Snapshot, record: RecordView | None, length: int) -> list[Sequence[int]]:
    """By component, the units of [0, length) of a record that are behind its shared prefix, or that are its own.

    A component with a window may lack pages of a prefix that another component shares.  Then the record takes pages of
    its own for them, and awaits their KV.  A page of the prefix that the tree owns has its KV, in each component.
    """
    if record is None:
        return [()] * len(snapshot.components)
    return [
        [
            unit
            for page, unit in enumerate(units[: -(-length // component.page_size)])
            if page >= record.protected_len // component.page_size
            or snapshot.pool(component.pool).owner_of.get(unit) == record.owner
        ]
        for component, units in zip(snapshot.components, record.units, strict=True)
    ]


def _page_refs(snapshot: Snapshot, event: seen.Sent | seen.Filled) -> tuple[Ref, ...]:
    return tuple(unit_ref(snapshot.pool(event.pool), page) for page in event.pages)


def _changed_pages(change: Transition, record: RecordView, later: RecordView) -> Evidence:
    """The pools in which an unfinished transfer has other pages than before."""
    was, now = _needed(change.before, record), _needed(change.after, later)
    for component, held, holds in zip(change.after.components, was, now, strict=True):
        if held != holds:
            values = {"pool": component.pool, "was": held, "now": holds}
            yield found(_transfer_ref(record.owner.id), HandoverCode.PAGES_CHANGED, **values)


def _needed(snapshot: Snapshot, record: RecordView) -> list[tuple[int, ...]]:
    """By component the units that the token after the transferred ones reads."""
    page_size, position = snapshot.limits.page_size, next_position(record)
    windows = [component.window for component in snapshot.components]
    firsts = [0 if window is None else first_needed_page(position, window, page_size) for window in windows]
    return [tuple(units[first:]) for first, units in zip(firsts, record.units, strict=True)]


def _own_at(snapshot: Snapshot, record: RecordView, pool: str, places: Sequence[int]) -> tuple[int, ...]:
    """The private units that a record has in one pool at these page indices."""
    first = record.protected_len // snapshot.limits.page_size
    return _at(snapshot, record, pool, [place for place in places if place >= first])


def _at(snapshot: Snapshot, record: RecordView, pool: str, places: Iterable[int]) -> tuple[int, ...]:
    """The units that a record has in one pool at these page indices."""
    return next(_each_at(snapshot, record, pool, list(places)))


def _each_at(snapshot: Snapshot, record: RecordView, pool: str, places: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """The units that a record has at these page indices in each component of a pool."""
    for component, units in zip(snapshot.components, record.units, strict=True):
        if component.pool == pool:
            yield tuple(units[place] for place in places if place < len(units))
