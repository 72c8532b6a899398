"""The number of units that an eviction reports as freed.

On a server: The scheduler counts pages that are not there: an allocation fails behind an eviction that is counted
as large enough.
"""

from swarden.invariants.events import TREE_KIND, Evicted, Freed
from swarden.invariants.invariant import invariant
from swarden.invariants.transition import Transition, When
from swarden.invariants.violation import Code, Evidence, found, pool_ref


class EvictionCountCode(Code):
    CLAIMED_TOO_MANY = "an eviction reports {claimed} freed units, but the tree freed {freed}"


@invariant(When.OP, needs=("Freed",), on=(Evicted,))
def evictions_count_freed_units(change: Transition) -> Evidence:
    """An eviction reports at most as many freed units of a pool as the tree freed since the last one."""
    freed: dict[str, int] = {}
    for event in change.tree_events:
        if isinstance(event, Freed) and event.owner.kind == TREE_KIND:
            freed[event.pool] = freed.get(event.pool, 0) + len(event.units)
        elif isinstance(event, Evicted):
            for pool, claimed in event.freed:
                if claimed > freed.get(pool, 0):
                    values = {"claimed": claimed, "freed": freed.get(pool, 0)}
                    yield found(pool_ref(pool), EvictionCountCode.CLAIMED_TOO_MANY, **values)
            freed = {}
