"""Evictions that claim more freed units than there are."""

from swarden.invariants.events import Evicted, Freed
from swarden.invariants.laws.memory.eviction_counts import EvictionCountCode, evictions_count_freed_units
from swarden.invariants.violation import Ref, found
from tests.invariants.builders import TREE, broken, idle

FREED = Freed("full", (5, 6), TREE, "evicted", 0)

CASES = [
    broken(
        evictions_count_freed_units,
        "counts-units-that-were-not-freed",
        idle(FREED, Evicted((("full", 2),), (("full", 2), ("swa", 2)), (("full", 1),))),
        found(Ref("pool", pool="swa"), EvictionCountCode.CLAIMED_TOO_MANY, claimed=2, freed=0),
    ),
]
