"""Engine counters that differ from the facts."""

from swarden.invariants.laws.memory.counters import CounterCode, free_counters_match_pools, tree_counters_match_nodes
from swarden.invariants.violation import found, pool_ref
from tests.invariants.builders import after, broken, counters

CASES = [
    broken(
        tree_counters_match_nodes,
        "evictable-and-protected",
        after(counters=counters(evictable={"full": 2, "swa": 4}, protected={"full": 3, "swa": 2})),
        found(pool_ref("swa"), CounterCode.EVICTABLE_MISCOUNTED, counted=4, actual=2),
        found(pool_ref("full"), CounterCode.PROTECTED_MISCOUNTED, counted=3, actual=4),
    ),
    broken(
        free_counters_match_pools,
        "free",
        after(counters=counters(free={"full": 5, "swa": 2})),
        found(pool_ref("full"), CounterCode.FREE_MISCOUNTED, counted=5, actual=4),
    ),
]
