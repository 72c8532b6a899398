"""Every unit of every pool: how many there are, whose each is, and who may move it."""

from itertools import chain

from invariants.base import Evidence, Transition, When, invariant, state_invariant
from invariants.events import Completed, Freed, Given, Refused, Taken, Written
from invariants.view import OUTSIDE_KIND, Owner, PoolView, Snapshot
from invariants.wording import standing, unit_of, units_of

ROLLED_BACK = "rolled back"  # the cause of a free that undoes part of a refused take


def conservation_terms(pool: PoolView) -> str:
    """The equation of a pool with its terms named, and by how much it does not hold."""
    return f"{pool.name}: {_equation(pool)}"


@state_invariant(covers=("CONS-F", "CONS-S", "HOST-CONS"), reads=("pools",))
def pools_conserve_their_units(change: Transition) -> Evidence:
    """The capacity of each pool is what is free, what is cached, what others hold and what is fenced.

    Sums alone are blind: a page that is in use and free at once balances one that is lost.
    """
    for pool in change.changes.pools:
        if not pool.is_partitioned and len(pool.free) + len(pool.held) + pool.num_fenced != pool.capacity:
            yield pool.name, _equation(pool)


@state_invariant(
    covers=("SINGLE-OWNER", "NO-UAF", "FREE-UNIQ", "ROW-POOL", "LIVE-NODE", "INFLIGHT-PIN"), reads=("pools",)
)
def each_unit_has_one_owner(change: Transition) -> Evidence:
    """Every unit of every pool is free, or has exactly one owner who must free it.

    Nobody: a leak.  Free and somebody: a use after free.  Twice free: a double free.
    Who reads the tree's pages under a lock holds them; holders are counted elsewhere.
    """
    for pool in change.changes.pools:
        if not pool.is_partitioned:
            yield from _wrongly_owned(pool)


@invariant(When.OP, covers=("ONE-SHOT", "FREE-UNIQ", "NO-UAF", "ROW-OVERWRITE"), on=(Taken, Given, Freed))
def units_move_only_by_their_owner(change: Transition) -> Evidence:
    """Only a free unit is taken, and only its owner gives a unit away or frees it, once."""
    for event, unit, owner in change.misplaced:
        pool = change.before.pool(event.pool)
        if not isinstance(event, Written) and 0 < unit <= pool.capacity:
            yield unit_of(pool, unit), f"{_deed(event)}, yet {standing(owner)}"


@invariant(When.OP, covers=("FREE-RANGE",), on=(Taken, Given, Freed))
def the_padding_unit_is_never_moved(change: Transition) -> Evidence:
    """Unit 0 and what lies beyond the capacity are never taken, given or freed."""
    for event, unit, _ in change.misplaced:
        pool = change.before.pool(event.pool)
        if not isinstance(event, Written) and not 0 < unit <= pool.capacity:
            yield unit_of(pool, unit), f"{_deed(event)}, yet {pool.unit}s run from 1 to {pool.capacity}"


def there_are_fences(change: Transition) -> bool:
    return change.before.has_fences or change.after.has_fences


@invariant(When.OP, covers=("INFLIGHT-PIN",), given=there_are_fences)
def fences_wait_for_a_launch(change: Transition) -> Evidence:
    """A unit behind a fence stays there until its launch has completed, and no longer."""
    completed = max((event.launch for event in change.events_of(Completed)), default=0)
    for before, after in zip(change.before.pools, change.after.pools, strict=True):
        fenced = set(chain.from_iterable(fence.units for fence in after.fenced))
        for fence in before.fenced:
            for unit in fence.units:
                if fence.launch > completed and unit not in fenced:
                    yield unit_of(after, unit), f"left its fence, yet launch {fence.launch} has not completed"
        for fence in after.fenced:
            if fence.launch <= completed:
                yield units_of(after, fence.units), f"still fenced, yet launch {fence.launch} has completed"


@invariant(When.OP, covers=("ATOMIC",), on=(Refused,))
def a_refused_take_changes_nothing(change: Transition) -> Evidence:
    """A take that was refused in one pool has taken nothing in another."""
    for index, event in enumerate(change.events):
        if isinstance(event, Refused):
            kept = _kept_after_refusal(change, index, event)
            if kept:
                named = " and ".join(units_of(change.after.pool(pool), units) for pool, units in kept.items())
                yield str(event.owner), f"was refused {event.want} of {event.pool}, yet kept {named}"


@invariant(When.QUIESCENT, covers=("CONS-F", "CONS-S", "ROW-POOL", "LOCK-RECEIPT"))
def drained_pools_are_full(change: Transition) -> Evidence:
    """After a drain every unit of every pool is free, and nobody holds a request, a record or a lock."""
    after = change.after
    for pool in after.pools:
        if len(pool.free) != pool.capacity:
            yield pool.name, _equation(pool)
    for request in after.requests or ():
        yield f"request r{request.id}", f"still {request.place}"
    for record in after.records or ():
        yield str(record.owner), f"still has row {record.row}"
    for receipt in after.receipts or ():
        yield f"receipt {receipt.id}", f"still out, held by {receipt.holder}"
    for node in after.nodes or ():
        yield f"node n{node.id}", f"still in the tree, with locks {list(node.locks)}"


def _equation(pool: PoolView) -> str:
    cached = [holding for holding in pool.holdings if holding.cached]
    protected = sum(len(holding.units) for holding in cached if holding.locks)
    num_cached = sum(len(holding.units) for holding in cached)
    held: dict[Owner, int] = {}
    for holding in pool.holdings:
        if not holding.cached:
            held[holding.owner] = held.get(holding.owner, 0) + len(holding.units)
    holders = ", ".join(f"{owner} {count}" for owner, count in held.items() if count)
    total = len(pool.free) + num_cached + sum(held.values()) + pool.num_fenced
    return (
        f"capacity {pool.capacity} = free {len(pool.free)}"
        f" + cached {num_cached} (evictable {num_cached - protected}, protected {protected})"
        f" + uncached {sum(held.values())}{f' ({holders})' if holders else ''}"
        f"{f' + fenced {pool.num_fenced}' if pool.num_fenced else ''}{_excess(total - pool.capacity)}"
    )


def _excess(excess: int) -> str:
    if not excess:
        return ""
    count = "one" if abs(excess) == 1 else str(abs(excess))
    return f": {count} too {'many' if excess > 0 else 'few'}"


def _wrongly_owned(pool: PoolView) -> Evidence:
    for unit, claims in sorted(pool.claims_by_unit().items()):
        named = " and ".join(map(str, sorted(claims))) or "nobody"
        if not 0 < unit <= pool.capacity:
            yield unit_of(pool, unit), f"owned by {named}, yet {pool.unit}s run from 1 to {pool.capacity}"
        elif len(claims) != 1:
            yield unit_of(pool, unit), f"owned by {named}"


def _deed(event: Taken | Given | Freed) -> str:
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
