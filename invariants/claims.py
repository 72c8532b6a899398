"""What the engine says of itself, against the facts."""

from collections.abc import Mapping

from invariants.invariant import state_invariant
from invariants.transition import Transition
from invariants.view import Claims
from invariants.violation import Evidence

NO_CLAIMS = Claims(free={}, evictable={}, protected={}, reserved={}, new_token_ratio=0)


@state_invariant(needs=("nodes", "claims"), reads=("claims", "nodes"))
def tree_claims_equal_facts(change: Transition) -> Evidence:
    """The evictable and protected pages that the engine counts are those of its unlocked and locked nodes."""
    claims, base = change.after.claims, _claims_that_hold(change)
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
    yield from _differences("evictable", claims.evictable, evictable)
    yield from _differences("protected", claims.protected, protected)


@state_invariant(needs=("claims",), reads=("claims", "pools"))
def pool_claims_equal_facts(change: Transition) -> Evidence:
    """The free units that the engine counts are those in its free list."""
    claims = change.after.claims
    assert claims is not None, "claims are needed"
    pools = change.after.pool_by_name
    yield from _differences("free", claims.free, {name: len(pools[name].free) for name in claims.free if name in pools})


def _claims_that_hold(change: Transition) -> Claims:
    """What was claimed before and found true of the nodes that there were; nothing where it was not checked."""
    claims = change.before.claims
    return NO_CLAIMS if change.changes.judges_all or claims is None else claims


def _differences(what: str, claimed: Mapping[str, int], facts: dict[str, int]) -> Evidence:
    if claimed != facts:
        for pool, count in facts.items():
            if claimed.get(pool) != count:
                yield pool, f"claims {claimed.get(pool)} {what}, there are {count}"
