"""The terms of a pool's conservation: capacity = free + cached + uncached + fenced."""

from collections.abc import Mapping
from typing import NamedTuple

from swarden.invariants.events import Owner
from swarden.invariants.view import PoolView


class Conservation(NamedTuple):
    """The number of units of a pool by term."""

    capacity: int
    free: int
    evictable: int  # cached, of nodes that are not locked
    protected: int  # cached, of locked nodes
    uncached: Mapping[Owner, int]  # by each other owner than the tree
    fenced: int

    @property
    def excess(self) -> int:
        """The number by which the sum of the terms exceeds the capacity; negative if the sum is below it."""
        terms = self.free + self.evictable + self.protected + sum(self.uncached.values()) + self.fenced
        return terms - self.capacity


def conservation_of(pool: PoolView) -> Conservation:
    protected = evictable = 0
    uncached: dict[Owner, int] = {}
    for holding in pool.holdings:
        count = len(holding.units)
        if not holding.cached:
            uncached[holding.owner] = uncached.get(holding.owner, 0) + count
        elif holding.locks:
            protected += count
        else:
            evictable += count
    return Conservation(
        capacity=pool.capacity,
        free=len(pool.free),
        evictable=evictable,
        protected=protected,
        uncached={owner: count for owner, count in uncached.items() if count},
        fenced=pool.num_fenced,
    )
