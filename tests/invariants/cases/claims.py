"""Engine counters that differ from the facts."""

from invariants.laws.memory.claims import ClaimCode, free_counters_match_pools, tree_counters_match_nodes
from invariants.violation import found, pool_ref
from tests.invariants.builders import after, broken, claims, healthy

CASES = [
    healthy(tree_counters_match_nodes),
    broken(
        tree_counters_match_nodes,
        "evictable-and-protected",
        after(claims=claims(evictable={"full": 2, "swa": 4}, protected={"full": 3, "swa": 2})),
        found(pool_ref("swa"), ClaimCode.EVICTABLE_MISCOUNTED, claimed=4, actual=2),
        found(pool_ref("full"), ClaimCode.PROTECTED_MISCOUNTED, claimed=3, actual=4),
    ),
    healthy(free_counters_match_pools),
    healthy(free_counters_match_pools, after(claims=claims(free={"full": 4})), "engine-without-counters"),
    broken(
        free_counters_match_pools,
        "free",
        after(claims=claims(free={"full": 5, "swa": 2})),
        found(pool_ref("full"), ClaimCode.FREE_MISCOUNTED, claimed=5, actual=4),
    ),
]
