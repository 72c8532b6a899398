"""The units of the pools: their number, and the owner of each.

On a server: A page without owner is lost until the server is restarted; with two owners, one request overwrites the KV
of the other, silently; freed twice, it is given to two requests.
"""

from collections.abc import Sequence

from swarden.invariants.conservation import Conservation, conservation_of
from swarden.invariants.events import Owner
from swarden.invariants.invariant import state_invariant
from swarden.invariants.transition import Transition
from swarden.invariants.view import FENCE, FREE
from swarden.invariants.violation import Code, Evidence, Found, Ref, found, pool_ref, unit_ref


class PoolCode(Code):
    OUT_OF_RANGE = "owned by {owners}, but ids run from 1 to {last}"
    LEAKED = "no owner"
    FREE_TWICE = "free twice: {owners}"
    FREE_IN_USE = "owned by {owners}"
    OWNED_TWICE = "owned by {owners}"
    TOO_MANY = "{terms}"
    TOO_FEW = "{terms}"


@state_invariant(reads=("pools",))
def unit_has_one_owner(change: Transition) -> Evidence:
    """Every unit of every pool is free, or has exactly one owner that must free it.

    No owner: a leak.  Free and owned: a use after free.  Free twice: a double free.
    Readers of the tree's pages under a lock are not owners; other laws check them.
    """
    for pool in change.changes.pools:
        if not pool.is_partitioned:
            for unit, owners in sorted(pool.owners_by_unit().items()):
                if len(owners) != 1 or not 0 < unit <= pool.capacity:
                    yield wrongly_owned(unit_ref(pool, unit), owners, pool.capacity)


@state_invariant(reads=("pools",))
def pools_conserve_units(change: Transition) -> Evidence:
    """The capacity of each pool is the sum of its free, cached, uncached and fenced units.

    An uncached unit has an owner other than the tree.  The sum alone does not prove one owner per unit: a page both in
    use and free balances a leaked one.
    """
    for pool in change.changes.pools:
        if not pool.is_partitioned and len(pool.free) + len(pool.held) + pool.num_fenced != pool.capacity:
            yield unbalanced(pool.name, conservation_of(pool))


def unbalanced(pool: str, terms: Conservation) -> Found:
    """A pool whose terms do not add up to its capacity."""
    return found(pool_ref(pool), PoolCode.TOO_MANY if terms.excess > 0 else PoolCode.TOO_FEW, terms=terms)


def wrongly_owned(unit: Ref, owners: Sequence[Owner], capacity: int) -> Found:
    """A unit without exactly one owner, or with an id out of range."""
    return found(unit, _code_of(unit.id, owners, capacity), owners=tuple(sorted(owners)), last=capacity)


def _code_of(unit: int, owners: Sequence[Owner], capacity: int) -> PoolCode:
    if not 0 < unit <= capacity:
        return PoolCode.OUT_OF_RANGE
    if not owners:
        return PoolCode.LEAKED
    distinct = set(owners)
    if distinct <= {FREE, FENCE}:
        return PoolCode.FREE_TWICE
    return PoolCode.OWNED_TWICE if distinct.isdisjoint({FREE, FENCE}) else PoolCode.FREE_IN_USE
