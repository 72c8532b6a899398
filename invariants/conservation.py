"""The terms of a pool's conservation: capacity = free + cached + held by other owners + fenced."""

from collections.abc import Mapping
from typing import NamedTuple

from invariants.view import Owner, PoolView


class Conservation(NamedTuple):
    """The number of units of a pool by term; `held` counts those of each owner but the tree."""

    capacity: int
    free: int
    evictable: int
    protected: int
    held: Mapping[Owner, int]
    fenced: int

    @property
    def excess(self) -> int:
        """By how much the terms exceed the capacity."""
        terms = self.free + self.evictable + self.protected + sum(self.held.values()) + self.fenced
        return terms - self.capacity


def conservation_of(pool: PoolView) -> Conservation:
    protected = evictable = 0
    held: dict[Owner, int] = {}
    for holding in pool.holdings:
        count = len(holding.units)
        if not holding.cached:
            held[holding.owner] = held.get(holding.owner, 0) + count
        elif holding.locks:
            protected += count
        else:
            evictable += count
    return Conservation(
        capacity=pool.capacity,
        free=len(pool.free),
        evictable=evictable,
        protected=protected,
        held={owner: count for owner, count in held.items() if count},
        fenced=pool.num_fenced,
    )
