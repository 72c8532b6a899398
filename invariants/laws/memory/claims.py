"""The engine's own counters, against the facts."""

from collections.abc import Mapping

from invariants.invariant import state_invariant
from invariants.transition import Transition
from invariants.view import Claims
from invariants.violation import Code, Evidence, found, pool_ref

NO_CLAIMS = Claims(free={}, evictable={}, protected={}, reserved={}, new_token_ratio=0)


class ClaimCode(Code):
    FREE_MISCOUNTED = "free_miscounted"
    EVICTABLE_MISCOUNTED = "evictable_miscounted"
    PROTECTED_MISCOUNTED = "protected_miscounted"


@state_invariant(needs=("nodes", "claims"), reads=("claims", "nodes"))
def tree_counters_match_nodes(change: Transition) -> Evidence:
    """The engine's counts of evictable and protected pages are those of its unlocked and locked nodes.

    Only pools that the engine counts are checked; it must count the same pools in every state.
    """
    claims, base = change.after.claims, _checked_claims(change)
    assert claims is not None, "claims are needed"
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
    yield from _differences(ClaimCode.EVICTABLE_MISCOUNTED, claims.evictable, evictable)
    yield from _differences(ClaimCode.PROTECTED_MISCOUNTED, claims.protected, protected)


@state_invariant(needs=("claims",), reads=("claims", "pools"))
def free_counters_match_pools(change: Transition) -> Evidence:
    """The engine's counts of free units are the lengths of its free lists."""
    claims = change.after.claims
    assert claims is not None, "claims are needed"
    free = {pool.name: len(pool.free) for pool in change.after.pools}
    yield from _differences(ClaimCode.FREE_MISCOUNTED, claims.free, free)


def _checked_claims(change: Transition) -> Claims:
    """The claims before, if they were checked against the nodes before; else NO_CLAIMS."""
    claims = change.before.claims
    return NO_CLAIMS if change.changes.checks_all or claims is None else claims


def _differences(code: ClaimCode, claimed: Mapping[str, int], facts: Mapping[str, int]) -> Evidence:
    """The pools whose claimed counts differ from the facts."""
    for pool, count in claimed.items():
        if facts.get(pool, 0) != count:
            yield found(pool_ref(pool), code, claimed=count, actual=facts.get(pool, 0))
