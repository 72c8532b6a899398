"""Who may move what inside a step: units between their owners, nodes out of the tree, writes into pages."""

from invariants.events import Demoted, Freed, Given, Refused, Removed, Slid, Split, Taken, Tombstoned, Unlocked, Written
from invariants.invariant import invariant
from invariants.transition import Transition, When
from invariants.view import OUTSIDE_KIND, REQUEST_KIND, ReceiptView, Snapshot
from invariants.violation import Evidence
from invariants.wording import deed_of, node_name, request_name, standing, unit_of, units_of

Victim = Removed | Demoted | Tombstoned
ROLLED_BACK = "rolled back"  # the cause of a free that undoes part of a refused take


@invariant(When.OP, on=(Taken, Given, Freed))
def the_padding_unit_is_never_moved(change: Transition) -> Evidence:
    """Unit 0 and what lies beyond the capacity are never taken, given or freed."""
    for event, unit, _ in change.misplaced:
        pool = change.before.pool(event.pool)
        if not isinstance(event, Written) and not 0 < unit <= pool.capacity:
            yield unit_of(pool, unit), f"{_move(event)}, yet {pool.unit}s run from 1 to {pool.capacity}"


@invariant(When.OP, on=(Taken, Given, Freed))
def units_move_only_by_their_owner(change: Transition) -> Evidence:
    """Only a free unit is taken, and only its owner gives a unit away or frees it, once."""
    for event, unit, owner in change.misplaced:
        pool = change.before.pool(event.pool)
        if not isinstance(event, Written) and 0 < unit <= pool.capacity:
            yield unit_of(pool, unit), f"{_move(event)}, yet {standing(owner)}"


@invariant(When.OP, on=(Refused,))
def a_refused_take_changes_nothing(change: Transition) -> Evidence:
    """A take that was refused in one pool has taken nothing in another."""
    for index, event in enumerate(change.events):
        if isinstance(event, Refused):
            kept = _kept_after_refusal(change, index, event)
            if kept:
                named = " and ".join(units_of(change.after.pool(pool), units) for pool, units in kept.items())
                yield str(event.owner), f"was refused {event.want} of {event.pool}, yet kept {named}"


@invariant(When.OP, on=(Written,))
def writes_go_to_private_units(change: Transition) -> Evidence:
    """A pass writes only to what its request owns just then, or gave up behind a fence that waits for the pass.

    Not to the tree's, nor to what is free.
    """
    for event, unit, owner in change.misplaced:
        if isinstance(event, Written):
            pool = change.before.pool(event.pool)
            wrote = f"written by {request_name(event.request_id)} for [{event.start}, {event.end})"
            yield unit_of(pool, unit), f"{wrote}, yet {standing(owner) if unit else 'it is padding'}"


@invariant(
    When.OP,
    needs=("nodes", "receipts"),
    on=(Removed, Demoted, Tombstoned),
)
def eviction_spares_locked_nodes(change: Transition) -> Evidence:
    """Nothing leaves the tree while a receipt covers it.

    A lock counts as long as its receipt was not returned; in a window, as long as its holder did not slide.
    """
    returned: set[int] = set()
    slid: set[int] = set()
    origin: dict[int, int] = {}
    for event in change.tree_events:
        if isinstance(event, Unlocked):
            returned.add(event.receipt)
        elif isinstance(event, Slid):
            slid.add(event.request_id)
        elif isinstance(event, Split):
            origin[event.upper] = origin.get(event.node, event.node)
        elif isinstance(event, (Removed, Demoted, Tombstoned)):
            node = origin.get(event.node, event.node)
            for receipt in change.before.receipts or () if node in change.before.covered else ():
                if receipt.id not in returned and _covers(change.before, receipt, node, event, slid):
                    yield node_name(event.node), f"{deed_of(event)}, yet {receipt.holder} has it locked"


def _move(event: Taken | Given | Freed) -> str:
    if isinstance(event, Taken):
        return f"taken by {event.owner}"
    if isinstance(event, Given):
        return f"given by {event.from_owner} to {event.to_owner}"
    return f"freed by {event.owner} ({event.cause})"


def _kept_after_refusal(change: Transition, index: int, refused: Refused) -> dict[str, list[int]]:
    """What the same take took in other pools right before it was refused, less what it gave back."""
    taken: dict[str, list[int]] = {}
    returned: set[tuple[str, int]] = set()
    for event in reversed(change.events[:index]):
        if isinstance(event, Freed) and event.owner == refused.owner and event.cause == ROLLED_BACK:
            returned.update((event.pool, unit) for unit in event.units)
        elif _may_be_part(event, refused, change.after):
            assert isinstance(event, Taken), f"{event} is no take"
            kept = [unit for unit in event.units if (event.pool, unit) not in returned]
            if kept:
                taken[event.pool] = kept
        else:
            break
    return taken


def _may_be_part(event: object, refused: Refused, snapshot: Snapshot) -> bool:
    """A take of as many units by the same owner in another pool of KV; rows are taken on their own."""
    return (
        isinstance(event, Taken)
        and event.owner == refused.owner
        and event.owner.kind != OUTSIDE_KIND
        and len(event.units) == refused.want
        and event.pool != refused.pool
        and any(component.pool == event.pool for component in snapshot.components)
    )


def _covers(before: Snapshot, receipt: ReceiptView, node: int, victim: Victim, slid: set[int]) -> bool:
    """Does a receipt cover what a victim gives up: all of it, or its pages of one component?"""
    has_slid = receipt.holder.kind == REQUEST_KIND and receipt.holder.id in slid
    return any(
        node in receipt.covers[index] and not (component.window is not None and has_slid)
        for index, component in enumerate(before.components)
        if not isinstance(victim, Tombstoned) or component.pool == victim.component
    )
