"""Counters that do not count what is there."""

from invariants.claims import pool_claims_equal_facts, tree_claims_equal_facts
from tests.invariants.builders import after, broken, claims, healthy

CASES = [
    healthy(tree_claims_equal_facts),
    broken(
        tree_claims_equal_facts,
        "both",
        after(claims=claims(evictable={"full": 2, "swa": 4}, protected={"full": 3, "swa": 2})),
        ("swa", "claims 4 evictable, there are 2"),
        ("full", "claims 3 protected, there are 4"),
    ),
    healthy(pool_claims_equal_facts),
    broken(
        pool_claims_equal_facts,
        "free",
        after(claims=claims(free={"full": 5, "swa": 2})),
        ("full", "claims 5 free, there are 4"),
    ),
]
