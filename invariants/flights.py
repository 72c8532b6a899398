"""Passes in flight: in which order, how many, and what waits for them."""

from collections.abc import Collection, Iterable, Sequence
from itertools import chain

from invariants.events import Completed, Discarded, Failed, Late, Launched
from invariants.invariant import invariant
from invariants.transition import Transition, When
from invariants.view import FENCE, REQUEST_KIND, SESSION_KIND, TREE_KIND, LaunchView, Owner, PoolView, Snapshot
from invariants.violation import Evidence
from invariants.wording import request_name, standing, unit_of, units_of


def there_are_fences(change: Transition) -> bool:
    snapshots = (change.before, change.after)
    return any(snapshot.has_fences or snapshot.fence_receipts for snapshot in snapshots)


def units_wait_for_passes(change: Transition) -> bool:
    """Is a freed unit kept from others until who may read it has completed?"""
    return not change.after.limits.reuses_in_launch_order


@invariant(When.OP, needs=("launches",))
def passes_complete_in_order(change: Transition) -> Evidence:
    """Passes complete in the order of their launches, each once, no more in flight than the engine may have."""
    in_flight = [view.launch for view in change.before.launches or ()]
    failed: set[int] = set()
    for event in change.pass_events:
        if isinstance(event, Launched):
            yield from _wrongly_launched(event.launch, in_flight, change.after.limits.most_launches)
            in_flight.append(event.launch)
        elif isinstance(event, (Late, Failed, Completed)):
            if event.launch not in in_flight:
                yield f"launch {event.launch}", f"is {_fate(event)}, yet it was not in flight"
            elif event.launch != in_flight[0]:
                yield f"launch {event.launch}", f"is {_fate(event)} before launch {in_flight[0]}"
            if isinstance(event, Failed):
                failed.add(event.launch)
            elif isinstance(event, Completed):
                in_flight = [launch for launch in in_flight if launch != event.launch]
    for launch in sorted(failed.intersection(in_flight)):
        yield f"launch {launch}", "has failed, yet it has not completed"
    views = [view.launch for view in change.after.launches or ()]
    if views != in_flight:
        yield "engine", f"has the launches {views} in flight, want {in_flight}"


@invariant(When.OP, needs=("launches",), on=(Discarded,))
def only_stale_results_are_discarded(change: Transition) -> Evidence:
    """What a completed pass computed is discarded only for a request that has given up its record since the launch."""
    landed = {(landing.launch, landing.request_id): landing for landing in change.landings}
    for event in change.events_of(Discarded):
        landing = landed.get((event.launch, event.request_id))
        subject = request_name(event.request_id)
        if landing is None:
            yield subject, f"launch {event.launch} is discarded for it, yet that pass did not complete with it"
        elif landing.counts:
            yield subject, f"[{landing.start}, {landing.end}) of launch {event.launch} is discarded, yet it counts"


@invariant(When.OP, given=there_are_fences)
def fences_wait_for_a_launch(change: Transition) -> Evidence:
    """Units and locks behind a fence stay there until their launch has completed, and no longer."""
    completed = max((event.launch for event in change.events_of(Completed)), default=0)
    for before, after in zip(change.before.pools, change.after.pools, strict=True):
        fenced = set(chain.from_iterable(fence.units for fence in after.fenced))
        for fence in before.fenced:
            for unit in fence.units:
                if fence.launch > completed and unit not in fenced:
                    yield unit_of(after, unit), f"left its fence, yet launch {fence.launch} has not completed"
        for fence in after.fenced:
            if why := _why_over(change, fence.launch, completed):
                yield units_of(after, fence.units), f"still fenced, yet {why}"
    for receipt in change.before.fence_receipts:
        if receipt.holder.id > completed and receipt.id not in change.after.receipt_by_id:
            yield f"receipt {receipt.id}", f"returned, yet launch {receipt.holder.id} has not completed"
    for receipt in change.after.fence_receipts:
        if why := _why_over(change, receipt.holder.id, completed):
            yield f"receipt {receipt.id}", f"still out, yet {why}"


@invariant(When.OP, needs=("launches",), given=units_wait_for_passes)
def units_in_flight_are_pinned(change: Transition) -> Evidence:
    """What a pass in flight reads or writes is its request's, cached under its lock, or behind a fence for that pass.

    It is never free and never another's.  A request that gave up its record since has nothing but fences, unless it was
    the turn of a session, which keeps the record for the next turn.
    """
    after = change.after
    for view in after.launches or ():
        for place, columns in enumerate(view.units):
            heirs = _heirs(after, view, place)
            for index, units in enumerate(columns):
                owners = set(map(after.pool(after.components[index].pool).owner_of.get, units)) - heirs
                if owners and not _are_locked(after, view, place, index, owners):
                    yield from _unpinned(after, view, place, index, units)


def _wrongly_launched(launch: int, in_flight: Sequence[int], most: int) -> Evidence:
    subject = f"launch {launch}"
    if in_flight and launch <= max(in_flight):
        yield subject, f"is launched after launch {max(in_flight)}"
    if len(in_flight) >= most:
        beside = ", ".join(map(str, in_flight))
        yield subject, f"is launched beside {beside}, at most {most} may be in flight"


def _fate(event: Late | Failed | Completed) -> str:
    return type(event).__name__.lower()


def _why_over(change: Transition, launch: int, completed: int) -> str:
    """Why nothing need wait for `launch`; empty where something must."""
    if launch <= completed:
        return f"launch {launch} has completed"
    is_known = change.after.launches is not None and launch not in change.after.launch_by_id
    return f"launch {launch} is not in flight" if is_known else ""


def _heirs(snapshot: Snapshot, view: LaunchView, place: int) -> set[Owner]:
    """Who may have the record that an entry of a pass was launched for."""
    request, session = view.entries[place][0], view.sessions[place] if view.sessions else 0
    if request not in view.given_up:
        return {Owner(REQUEST_KIND, request)}
    if not session:
        return set()
    turns = [Owner(REQUEST_KIND, one.id) for one in snapshot.requests or () if one.session == session]
    return {Owner(SESSION_KIND, session), *turns}


def _are_locked(
    snapshot: Snapshot, view: LaunchView, place: int, component: int, owners: Collection[Owner | None]
) -> bool:
    """Are these all nodes that a lock covers: of whose record it is, or one that waits for this pass or a later one?"""
    nodes = [owner.id for owner in owners if owner is not None and owner.kind == TREE_KIND]
    request = Owner(REQUEST_KIND, view.entries[place][0])
    late = [receipt.holder for receipt in snapshot.fence_receipts if receipt.holder.id >= view.launch]
    return (
        snapshot.receipts is not None
        and len(nodes) == len(owners)
        and snapshot.covered_by({request, *_heirs(snapshot, view, place), *late}, component).issuperset(nodes)
    )


def _unpinned(snapshot: Snapshot, view: LaunchView, place: int, component: int, units: Iterable[int]) -> Evidence:
    """Unit by unit: fences, and caches that count readers without telling who they are, are looked at here."""
    request, heirs = view.entries[place][0], _heirs(snapshot, view, place)
    pool = snapshot.pool(snapshot.components[component].pool)
    waits_for = {unit: fence.launch for fence in pool.fenced for unit in fence.units}
    for unit in filter(None, units):
        owner = pool.owner_of.get(unit)
        if owner == FENCE:
            is_pinned = waits_for[unit] >= view.launch
        elif owner is not None and owner.kind == TREE_KIND:
            is_pinned = _are_locked(snapshot, view, place, component, [owner]) or _is_read(snapshot, pool, unit)
        else:
            is_pinned = owner in heirs
        if not is_pinned:
            where = f"launch {view.launch} reads or writes it for {request_name(request)}"
            yield unit_of(pool, unit), f"{where}, yet {_why_loose(request, owner, waits_for.get(unit))}"


def _is_read(snapshot: Snapshot, pool: PoolView, unit: int) -> bool:
    """Does a cache that gives no receipts count a reader of a unit?"""
    return snapshot.receipts is None and any(
        holding.locks for holding in pool.holdings if holding.cached and unit in holding.units
    )


def _why_loose(request: int, owner: Owner | None, waits_for: int | None) -> str:
    if owner == FENCE:
        return f"its fence waits for launch {waits_for}"
    if owner == (REQUEST_KIND, request):
        return f"{owner} has it in another record"
    if owner is not None and owner.kind == TREE_KIND:
        return f"it is owned by {owner}, under no lock for it"
    return standing(owner)
