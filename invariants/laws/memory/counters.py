"""The engine's own counters, compared with the facts.

On a server: Admission decides by wrong numbers: requests wait although memory is free, or an allocation fails and ends
the scheduler.
"""

from collections.abc import Mapping

from swarden.invariants.invariant import state_invariant
from swarden.invariants.transition import Transition
from swarden.invariants.view import Counters
from swarden.invariants.violation import Code, Evidence, found, pool_ref

NO_COUNTERS = Counters(free={}, evictable={}, protected={}, new_token_ratio=0)


class CounterCode(Code):
    FREE_MISCOUNTED = "the engine counts {counted} free units, there are {actual}"
    EVICTABLE_MISCOUNTED = "the engine counts {counted} evictable pages, there are {actual}"
    PROTECTED_MISCOUNTED = "the engine counts {counted} protected pages, there are {actual}"


@state_invariant(needs=("nodes", "counters"), reads=("counters", "nodes"))
def tree_counters_match_nodes(change: Transition) -> Evidence:
    """The engine's counts of evictable and protected pages are those of its unlocked and locked nodes.

    Only pools that the engine counts are checked; it must count the same pools in every state.
    """
    counters, base = change.after.counters, _checked_counters(change)
    assert counters is not None, "counters are needed"
    evictable: dict[str, int] = {}
    protected: dict[str, int] = {}
    for index, component in enumerate(change.after.components):
        pool = component.pool
        if pool not in protected:
            evictable[pool], protected[pool] = base.evictable.get(pool, 0), base.protected.get(pool, 0)
        for node in change.changes.nodes:
            counts = protected if node.locks[index] else evictable
            counts[pool] += len(node.units[index]) - node.units[index].count(0)
        for node in change.changes.former_nodes:
            counts = protected if node.locks[index] else evictable
            counts[pool] -= len(node.units[index]) - node.units[index].count(0)
    yield from _differences(CounterCode.EVICTABLE_MISCOUNTED, counters.evictable, evictable)
    yield from _differences(CounterCode.PROTECTED_MISCOUNTED, counters.protected, protected)


@state_invariant(needs=("counters",), reads=("counters", "pools"))
def free_counters_match_pools(change: Transition) -> Evidence:
    """The engine's counts of free units are the lengths of its free lists."""
    counters = change.after.counters
    assert counters is not None, "counters are needed"
    free = {pool.name: len(pool.free) for pool in change.after.pools}
    yield from _differences(CounterCode.FREE_MISCOUNTED, counters.free, free)


def _checked_counters(change: Transition) -> Counters:
    """The counters of the checked state; NO_COUNTERS if all nodes must be checked."""
    counters = change.checked.counters if change.checked is not None else None
    return NO_COUNTERS if change.changes.checks_all or counters is None else counters


def _differences(code: CounterCode, counted: Mapping[str, int], facts: Mapping[str, int]) -> Evidence:
    """The pools whose counters differ from the facts."""
    for pool, count in counted.items():
        if facts.get(pool, 0) != count:
            yield found(pool_ref(pool), code, counted=count, actual=facts.get(pool, 0))
