"""Passes in flight: their order and number, and the units and locks that are kept for them.

A launch is one forward pass, named by its number.  An entry is the part of a pass that computes one request.  A fence
holds the units and locks that were released while a pass may still use them, until that launch has completed.

On a server: A page is used again while the GPU still reads or writes it: wrong answers, silently, and only under load.
"""

from collections.abc import Collection, Iterable, Sequence
from itertools import chain

import swarden.invariants.events as seen
from swarden.invariants.invariant import invariant
from swarden.invariants.limits import BOTH
from swarden.invariants.transition import Transition, When
from swarden.invariants.view import FENCE, FREE, LaunchView, PoolView, Snapshot
from swarden.invariants.violation import Code, Evidence, Found, Ref, found, request_ref, unit_ref


class FlightCode(Code):
    LAUNCHED_OUT_OF_ORDER = "launched after {last}, but launch ids must increase"
    TOO_MANY_IN_FLIGHT = "launched while {in_flight} are in flight, at most {most} may be"
    NOT_IN_FLIGHT = "named by {event}, but not in flight"
    NOT_THE_OLDEST = "named by {event}, but {oldest} is older and still in flight"
    FAILED_NOT_COMPLETED = "failed, but has not completed in that step"
    IN_FLIGHT_DIFFERS = "the launches in flight are {found}, but by the events they are {wanted}"
    DISCARDED_NOT_COMPLETED = "its result of {launch} discarded, but no such result came in this step"
    VALID_RESULT_DISCARDED = "[{start}, {end}) of {launch} discarded, but the result is valid"
    LEFT_FENCE_EARLY = "left its fence before {launch} completed"
    UNLOCKED_EARLY = "unlocked before {launch} completed"
    USED_WHILE_UNOWNED = "{launch} reads or writes it for {request}, but it has no owner"
    USED_AFTER_FREE = "{launch} reads or writes it for {request}, but it is free"
    USED_AFTER_CHANGE_OF_OWNER = "{launch} reads or writes it for {request}, but it is owned by {owner}"
    USED_IN_ANOTHER_RECORD = "{launch} reads or writes it for {request}, but {owner} has it in another record"
    USED_WITHOUT_LOCK = (
        "{launch} reads or writes it for {request}, but it is owned by {owner} without a lock for the pass"
    )
    FENCED_FOR_EARLIER_LAUNCH = "{launch} reads or writes it for {request}, but its fence waits for {waits_for} only"


def launch_ref(launch: int) -> Ref:
    return Ref("launch", launch)


def has_fences(change: Transition) -> bool:
    """Does a freed unit or lock wait for its pass in a fence?"""
    return any(snapshot.has_fences or snapshot.fence_receipts for snapshot in (change.before, change.after))


def freed_units_wait_for_passes(change: Transition) -> bool:
    """Is a freed unit kept from other requests until the passes that may read it have completed?"""
    return not change.after.limits.reuses_in_launch_order


@invariant(When.OP, needs=("launches", "Launched", "Completed"))
def passes_complete_in_order(change: Transition) -> Evidence:
    """Passes complete in launch order, each once, and at most most_launches are in flight.

    Launch ids increase.  Late, Failed and Completed name the oldest pass in flight, and a failed pass completes in the
    same step.  The launches of the snapshot are those that the events leave in flight, in order.
    """
    in_flight = [view.launch for view in change.before.launches or ()]
    failed: set[int] = set()
    for event in change.pass_events:
        if isinstance(event, seen.Launched):
            if in_flight:
                yield from _wrongly_launched(event.launch, in_flight, change.after.limits.most_launches)
            in_flight.append(event.launch)
        elif isinstance(event, (seen.Late, seen.Failed, seen.Completed)):
            subject, name = launch_ref(event.launch), type(event).__name__
            if event.launch not in in_flight:
                yield found(subject, FlightCode.NOT_IN_FLIGHT, event=name)
            elif event.launch != in_flight[0]:
                yield found(subject, FlightCode.NOT_THE_OLDEST, event=name, oldest=launch_ref(in_flight[0]))
            if isinstance(event, seen.Failed):
                failed.add(event.launch)
            elif isinstance(event, seen.Completed):
                in_flight = [launch for launch in in_flight if launch != event.launch]
    for launch in sorted(failed.intersection(in_flight)):
        yield found(launch_ref(launch), FlightCode.FAILED_NOT_COMPLETED)
    views = [view.launch for view in change.after.launches or ()]
    if views != in_flight:
        yield found(
            Ref("engine"), FlightCode.IN_FLIGHT_DIFFERS, found=_launch_refs(views), wanted=_launch_refs(in_flight)
        )


@invariant(When.OP, needs=("launches", "Completed"), on=(seen.Discarded,))
def discarded_results_are_stale(change: Transition) -> Evidence:
    """Only results that do not count are discarded, and only when their pass completes.

    A result counts unless the pass failed, or the request ended or released its record since the launch.
    """
    landed = {(landing.launch, landing.request_id): landing for landing in change.landings}
    for event in change.events_of(seen.Discarded):
        landing = landed.get((event.launch, event.request_id))
        subject = request_ref(event.request_id)
        if landing is None:
            yield found(subject, FlightCode.DISCARDED_NOT_COMPLETED, launch=launch_ref(event.launch))
        elif landing.counts:
            values = {"launch": launch_ref(event.launch), "start": landing.start, "end": landing.end}
            yield found(subject, FlightCode.VALID_RESULT_DISCARDED, **values)


@invariant(When.OP, needs=("Completed",), given=has_fences)
def fenced_units_wait_for_their_launch(change: Transition) -> Evidence:
    """Fenced units and locks stay fenced until the launch of their fence has completed."""
    completed = max((event.launch for event in change.events_of(seen.Completed)), default=0)
    for before, after in zip(change.before.pools, change.after.pools, strict=True):
        fenced = set(chain.from_iterable(fence.units for fence in after.fenced))
        for fence in before.fenced:
            for unit in fence.units:
                if fence.launch > completed and unit not in fenced:
                    yield found(unit_ref(after, unit), FlightCode.LEFT_FENCE_EARLY, launch=launch_ref(fence.launch))
    for receipt in change.before.fence_receipts:
        if receipt.holder.id > completed and receipt.id not in change.after.receipt_by_id:
            yield found(Ref("receipt", receipt.id), FlightCode.UNLOCKED_EARLY, launch=launch_ref(receipt.holder.id))


@invariant(When.OP, needs=("launches",), given=freed_units_wait_for_passes)
def units_in_flight_are_pinned(change: Transition) -> Evidence:
    """A unit that a pass in flight reads or writes is owned by its request, cached under a lock, or fenced for it.

    It is neither free nor owned by another request.  If the request released its record since, the unit is fenced for
    this or a later pass, or its session or another turn of the session owns it.  In an engine that is no part of a
    pair, a save of its own KV may keep it, too: a save that ends before the pass fences the unit.  So may a backup.
    """
    after = change.after
    owners_of = [after.pool(component.pool).owner_of for component in after.components] if after.launches else []
    for view in after.launches or ():
        for entry, columns in enumerate(view.units):
            permitted = _permitted_owners(after, view, entry)
            for index, units in enumerate(columns):
                owners = set(map(owners_of[index].get, units)) - permitted
                if owners and not _are_locked(after, view, entry, index, owners):
                    yield from _unpinned(after, view, entry, index, units)


def _launch_refs(launches: Iterable[int]) -> tuple[Ref, ...]:
    return tuple(map(launch_ref, launches))


def _wrongly_launched(launch: int, in_flight: Sequence[int], most: int) -> Evidence:
    subject = launch_ref(launch)
    if launch <= max(in_flight):
        yield found(subject, FlightCode.LAUNCHED_OUT_OF_ORDER, last=launch_ref(max(in_flight)))
    if len(in_flight) >= most:
        yield found(subject, FlightCode.TOO_MANY_IN_FLIGHT, in_flight=_launch_refs(in_flight), most=most)


def _permitted_owners(snapshot: Snapshot, view: LaunchView, entry: int) -> set[seen.Owner]:
    """The owners that may have the record for which an entry of a pass, given by its index, was launched."""
    request, session = view.entries[entry][0], view.sessions[entry] if view.sessions else 0
    if request not in view.given_up or request in view.rewound:
        return {seen.Owner(seen.REQUEST_KIND, request)}
    if not session:
        return {seen.Owner(seen.HANDOVER_KIND, request)} if snapshot.limits.role == BOTH else set()
    turns = [seen.Owner(seen.REQUEST_KIND, turn.id) for turn in snapshot.requests or () if turn.session == session]
    return {seen.Owner(seen.SESSION_KIND, session), *turns}


def _are_locked(
    snapshot: Snapshot, view: LaunchView, entry: int, component: int, owners: Collection[seen.Owner | None]
) -> bool:
    """Are all owners nodes under a lock of the record's owner, or under a lock fenced for this or a later pass?"""
    nodes = [owner.id for owner in owners if owner is not None and owner.kind == seen.TREE_KIND]
    late = [receipt.holder for receipt in snapshot.fence_receipts if receipt.holder.id >= view.launch]
    holders = {seen.Owner(seen.REQUEST_KIND, view.entries[entry][0]), *_permitted_owners(snapshot, view, entry), *late}
    return (
        snapshot.receipts is not None
        and len(nodes) == len(owners)
        and snapshot.covered_by(holders, component).issuperset(nodes)
    )


def _unpinned(snapshot: Snapshot, view: LaunchView, entry: int, component: int, units: Iterable[int]) -> Evidence:
    """The units that are not kept for a pass: neither owned, locked, nor fenced for it.

    A cache that counts readers without receipts keeps each unit that has a reader.
    """
    request, permitted = view.entries[entry][0], _permitted_owners(snapshot, view, entry)
    pool = snapshot.pool(snapshot.components[component].pool)
    waits_for = {unit: fence.launch for fence in pool.fenced for unit in fence.units}
    for unit in filter(None, units):
        owner = pool.owner_of.get(unit)
        if owner == FENCE:
            is_pinned = waits_for[unit] >= view.launch
        elif owner is not None and owner.kind == seen.TREE_KIND:
            is_pinned = _are_locked(snapshot, view, entry, component, [owner]) or _is_read(snapshot, pool, unit)
        else:
            is_pinned = owner in permitted or (owner is not None and owner.kind == seen.BACKUP_KIND)
        if not is_pinned:
            yield _not_pinned(unit_ref(pool, unit), view.launch, request, owner, waits_for.get(unit, 0))


def _is_read(snapshot: Snapshot, pool: PoolView, unit: int) -> bool:
    """Does a cache without receipts count a reader of a unit?"""
    return snapshot.receipts is None and any(
        holding.locks for holding in pool.holdings if holding.cached and unit in holding.units
    )


def _not_pinned(subject: Ref, launch: int, request_id: int, owner: seen.Owner | None, waits_for: int) -> Found:
    """A unit that a pass reads or writes, but that is not kept for the pass."""
    values: dict[str, object] = {"launch": launch_ref(launch), "request": request_ref(request_id)}
    if owner is None:
        return found(subject, FlightCode.USED_WHILE_UNOWNED, **values)
    if owner == FREE:
        return found(subject, FlightCode.USED_AFTER_FREE, **values)
    if owner == FENCE:
        return found(subject, FlightCode.FENCED_FOR_EARLIER_LAUNCH, **values, waits_for=launch_ref(waits_for))
    if owner.kind == seen.TREE_KIND:
        return found(subject, FlightCode.USED_WITHOUT_LOCK, **values, owner=owner)
    is_own = owner == (seen.REQUEST_KIND, request_id)
    code = FlightCode.USED_IN_ANOTHER_RECORD if is_own else FlightCode.USED_AFTER_CHANGE_OF_OWNER
    return found(subject, code, **values, owner=owner)
