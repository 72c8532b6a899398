"""Preemption: which running requests yield to a waiting request of higher priority."""

from collections.abc import Sequence
from dataclasses import dataclass

from swarden.engine_under_test.pools.paired import Need
from swarden.engine_under_test.request import Request


@dataclass(frozen=True, slots=True)
class Yield:
    """The units that preempting a request would save, by pool: its own units, and its estimated growth."""

    request: Request
    own: Need
    growth: Need

    def of(self, pool: str) -> int:
        return self.own.get(pool, 0) + self.growth.get(pool, 0)


@dataclass(frozen=True, slots=True)
class Contention:
    """The first waiting request, the units that it lacks by pool, and the requests that it may preempt."""

    first: Request
    lacking: Need
    yields: Sequence[Yield]


def victims(lacking: Need, candidates: Sequence[Yield]) -> list[Request]:
    """The candidates to preempt: lowest priority and latest arrival first, without those that are not needed.

    Empty where no unit is lacking, or where preempting all candidates would not free enough.
    """
    chosen = sorted(candidates, key=lambda one: (one.request.priority, -one.request.id))
    if not _cover(chosen, lacking):
        return []
    for candidate in reversed(list(chosen)):
        remaining = [other for other in chosen if other is not candidate]
        if _cover(remaining, lacking):
            chosen = remaining
    return [one.request for one in chosen]


def _cover(yields: Sequence[Yield], lacking: Need) -> bool:
    """Do these requests together free enough units?"""
    return all(sum(one.of(pool) for one in yields) >= count for pool, count in lacking.items())
