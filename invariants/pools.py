"""Every unit of every pool: how many there are, and whose each is."""

from invariants.invariant import state_invariant
from invariants.transition import Transition
from invariants.view import Owner, PoolView
from invariants.violation import Evidence
from invariants.wording import unit_of


def conservation_terms(pool: PoolView) -> str:
    """The equation of a pool with its terms named, and by how much it does not hold."""
    return f"{pool.name}: {equation_of(pool)}"


@state_invariant(reads=("pools",))
def each_unit_has_one_owner(change: Transition) -> Evidence:
    """Every unit of every pool is free, or has exactly one owner who must free it.

    Nobody: a leak.  Free and somebody: a use after free.  Twice free: a double free.
    Who reads the tree's pages under a lock holds them; holders are counted elsewhere.
    """
    for pool in change.changes.pools:
        if not pool.is_partitioned:
            yield from _wrongly_owned(pool)


@state_invariant(reads=("pools",))
def pools_conserve_their_units(change: Transition) -> Evidence:
    """The capacity of each pool is what is free, what is cached, what others hold and what is fenced.

    Sums alone are blind: a page that is in use and free at once balances one that is lost.
    """
    for pool in change.changes.pools:
        if not pool.is_partitioned and len(pool.free) + len(pool.held) + pool.num_fenced != pool.capacity:
            yield pool.name, equation_of(pool)


def equation_of(pool: PoolView) -> str:
    """The terms of a pool's conservation, and by how much they miss its capacity."""
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
