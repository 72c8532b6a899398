"""The sentences of the laws of memory."""

from collections.abc import Mapping

from invariants.laws.memory.eviction_counts import EvictionCountCode
from invariants.violation import Code

SENTENCES: Mapping[Code, str] = {
    EvictionCountCode.CLAIMED_TOO_MANY: "an eviction claims {claimed} freed units, the tree gave back {freed}",
}
