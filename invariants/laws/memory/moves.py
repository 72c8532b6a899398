"""The moves of a step: units between owners, nodes out of the tree, and writes to pages.

On a server: Two requests use one page, or a page is given away while it is still read: wrong answers of other clients,
silently, or an assertion that ends the scheduler.
"""

import swarden.invariants.events as seen
from swarden.invariants.invariant import invariant
from swarden.invariants.transition import Transition, When
from swarden.invariants.view import FREE, ReceiptView, Snapshot
from swarden.invariants.violation import Code, Evidence, Found, Ref, found, node_ref, owner_ref, request_ref, unit_ref

Move = seen.Taken | seen.Given | seen.Freed
Departure = seen.Removed | seen.Demoted | seen.Tombstoned
MOVE_EVENTS = ("Taken", "Given", "Freed")  # without one of them the owner inside a step is unknown


class MoveCode(Code):
    OUT_OF_RANGE = "{move} by {by}, but ids run from 1 to {last}"
    TAKEN_IN_USE = "taken by {by}, but its owner was {owner}"
    GIVEN_BY_ANOTHER = "given by {by} to {to}, but its owner was {owner}"
    FREED_BY_ANOTHER = "freed by {by} ({cause}), but its owner was {owner}"
    FREED_TWICE = "freed by {by} ({cause}), but it was free already"
    KEPT_AFTER_REFUSAL = "refused {want} units of {pool}, but kept {kept}"
    WRITTEN_PADDING = "padding, written for positions [{start}, {end}) of {request}"
    WRITTEN_BY_ANOTHER = "written for positions [{start}, {end}) of {request}, but its owner was {owner}"
    COPIED_OVER = "written by a copy for {by}, but its owner was {owner}"
    REMOVED_UNDER_LOCK = "removed for {component} pages, but locked by {holder}"
    DEMOTED_UNDER_LOCK = "demoted for {component} pages, but locked by {holder}"
    TOMBSTONED_UNDER_LOCK = "lost its {component} pages, but locked by {holder}"


UNDER_LOCK = {
    seen.Removed: MoveCode.REMOVED_UNDER_LOCK,
    seen.Demoted: MoveCode.DEMOTED_UNDER_LOCK,
    seen.Tombstoned: MoveCode.TOMBSTONED_UNDER_LOCK,
}


@invariant(When.OP, on=(seen.Taken, seen.Given, seen.Freed))
def padding_unit_is_never_moved(change: Transition) -> Evidence:
    """Unit 0 and ids beyond the capacity are never taken, given or freed."""
    for event, unit, _ in change.misplaced:
        pool = change.before.pool(event.pool)
        if isinstance(event, Move) and not 0 < unit <= pool.capacity:
            yield out_of_range(event, unit_ref(pool, unit), pool.capacity)


@invariant(When.OP, needs=MOVE_EVENTS, on=(seen.Taken, seen.Given, seen.Freed))
def units_move_only_by_their_owner(change: Transition) -> Evidence:
    """A unit is taken only while it is free, and given or freed only by its owner."""
    for event, unit, owner in change.misplaced:
        pool = change.before.pool(event.pool)
        if isinstance(event, Move) and 0 < unit <= pool.capacity:
            yield wrongly_moved(event, unit_ref(pool, unit), owner)


@invariant(When.OP, needs=("Taken", "Freed"), on=(seen.Refused,))
def refused_takes_change_nothing(change: Transition) -> Evidence:
    """A take that is refused in one pool keeps no units of another pool."""
    for index, event in enumerate(change.events):
        if isinstance(event, seen.Refused):
            kept = _kept_after_refusal(change, index, event)
            if kept:
                values = {"pool": event.pool, "want": event.want, "kept": tuple(kept)}
                yield found(owner_ref(event.owner), MoveCode.KEPT_AFTER_REFUSAL, **values)


@invariant(When.OP, needs=MOVE_EVENTS, on=(seen.Written,))
def writes_go_to_private_units(change: Transition) -> Evidence:
    """A pass writes only to units that its request owns, or that are fenced for this pass or a later one.

    If pages are shared before they are computed, all requests that share one write it, with the same KV.  The units
    of a turn may belong to its session, or to another turn of the session, when its pass writes.
    """
    for event, unit, owner in change.misplaced:
        if isinstance(event, seen.Written):
            yield found(
                unit_ref(change.before.pool(event.pool), unit),
                MoveCode.WRITTEN_BY_ANOTHER if unit else MoveCode.WRITTEN_PADDING,
                request=request_ref(event.request_id),
                start=event.start,
                end=event.end,
                owner=owner,
            )


@invariant(When.OP, needs=MOVE_EVENTS, on=(seen.CopiedIn, seen.CopyBegan, seen.Filled))
def copies_go_to_private_units(change: Transition) -> Evidence:
    """A copy writes only to units that its owner holds, or that were taken for it in this step.

    A copy must not write units that the cache has already: even with equal content, a restore may race with the readers
    of a locked prefix (sglang pull 29471).
    """
    for event, unit, owner in change.misplaced:
        if isinstance(event, seen.CopiedIn):
            pool = change.before.pool(event.pool)
            yield found(unit_ref(pool, unit), MoveCode.COPIED_OVER, by=event.owner, owner=owner)


@invariant(When.OP, needs=("nodes", "receipts", "Unlocked", "Split"), on=(seen.Removed, seen.Demoted, seen.Tombstoned))
def eviction_spares_locked_nodes(change: Transition) -> Evidence:
    """No node loses its pages while a receipt covers it.

    A receipt of the state before counts until it is returned, in a windowed component until its holder's window slides.
    """
    returned: set[int] = set()
    slid: set[int] = set()
    origin: dict[int, int] = {}
    for event in change.tree_events:
        if isinstance(event, seen.Unlocked):
            returned.add(event.receipt)
        elif isinstance(event, seen.Slid):
            slid.add(event.request_id)
        elif isinstance(event, seen.Split):
            origin[event.upper] = origin.get(event.node, event.node)
        elif isinstance(event, (seen.Removed, seen.Demoted, seen.Tombstoned)):
            node = origin.get(event.node, event.node)
            for receipt in change.before.receipts or () if node in change.before.covered else ():
                if receipt.id not in returned and _covers(change.before, receipt, node, event, slid):
                    yield found(
                        node_ref(event.node), UNDER_LOCK[type(event)], component=event.component, holder=receipt.holder
                    )


def out_of_range(event: Move, unit: Ref, capacity: int) -> Found:
    """A move of the padding unit, or of a unit beyond the capacity."""
    return found(unit, MoveCode.OUT_OF_RANGE, move=type(event).__name__.lower(), by=_mover(event), last=capacity)


def wrongly_moved(event: Move, unit: Ref, owner: seen.Owner | None) -> Found:
    """A move of a free unit, or of a unit by a holder that is not its owner."""
    by = _mover(event)
    if isinstance(event, seen.Taken):
        return found(unit, MoveCode.TAKEN_IN_USE, by=by, owner=owner)
    if isinstance(event, seen.Given):
        return found(unit, MoveCode.GIVEN_BY_ANOTHER, by=by, to=event.to_owner, owner=owner)
    code = MoveCode.FREED_TWICE if owner == FREE else MoveCode.FREED_BY_ANOTHER
    return found(unit, code, by=by, cause=event.cause, owner=owner)


def _mover(event: Move) -> seen.Owner:
    """The owner that moves the units."""
    return event.from_owner if isinstance(event, seen.Given) else event.owner


def _kept_after_refusal(change: Transition, index: int, refused: seen.Refused) -> list[Ref]:
    """The units that the same take got from other pools right before it was refused, less those that it freed."""
    taken: list[Ref] = []
    returned: set[tuple[str, int]] = set()
    for event in reversed(change.events[:index]):
        if isinstance(event, seen.Freed) and event.owner == refused.owner and event.cause == seen.FreeCause.ROLLED_BACK:
            returned.update((event.pool, unit) for unit in event.units)
        elif _may_be_part(event, refused, change.after):
            assert isinstance(event, seen.Taken), f"{event} is no take"
            pool = change.after.pool(event.pool)
            taken += [unit_ref(pool, unit) for unit in event.units if (event.pool, unit) not in returned]
        else:
            break
    return taken


def _may_be_part(event: object, refused: seen.Refused, snapshot: Snapshot) -> bool:
    """Is an event a take of equally many units by the same owner in another KV pool?  Rows are taken separately."""
    return (
        isinstance(event, seen.Taken)
        and event.owner == refused.owner
        and event.owner.kind != seen.OUTSIDE_KIND
        and len(event.units) == refused.want
        and event.pool != refused.pool
        and any(component.pool == event.pool for component in snapshot.components)
    )


def _covers(before: Snapshot, receipt: ReceiptView, node: int, event: Departure, slid: set[int]) -> bool:
    """Does a receipt cover the pages that a node loses?  If slides are not reported, each window may have slid."""
    may_have_slid = "Slid" in before.unreported or (
        receipt.holder.kind == seen.REQUEST_KIND and receipt.holder.id in slid
    )
    return any(
        node in receipt.covers[index] and not (component.window is not None and may_have_slid)
        for index, component in enumerate(before.components)
        if not isinstance(event, seen.Tombstoned) or component.pool == event.component
    )
