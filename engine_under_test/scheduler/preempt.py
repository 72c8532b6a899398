"""Who gives way to a more important request that waits."""

from collections.abc import Sequence
from dataclasses import dataclass

from engine_under_test.pools.paired import Need
from engine_under_test.request import Request


@dataclass(frozen=True, slots=True)
class Yield:
    """What a running request would give back, by pool: units of its own, and pages that it is expected to take."""

    request: Request
    own: Need
    growth: Need

    def of(self, pool: str) -> int:
        return self.own.get(pool, 0) + self.growth.get(pool, 0)


@dataclass(frozen=True, slots=True)
class Rivalry:
    """The first who waits, what it is lacking by pool (rows too), and who is so much less important."""

    first: Request
    lacking: Need
    yields: Sequence[Yield]


def victims(lacking: Need, candidates: Sequence[Yield]) -> list[Request]:
    """Of the candidates, the least important and latest, and nobody without whom the others do.

    Nobody where nothing is lacking, or where all of them would not do: a preemption in vain helps no one.
    """
    chosen = sorted(candidates, key=lambda one: (one.request.priority, -one.request.id))
    if not _cover(chosen, lacking):
        return []
    for one in reversed(list(chosen)):
        others = [other for other in chosen if other is not one]
        if _cover(others, lacking):
            chosen = others
    return [one.request for one in chosen]


def _cover(yields: Sequence[Yield], lacking: Need) -> bool:
    """Is what all of these give back enough?"""
    return all(sum(one.of(pool) for one in yields) >= count for pool, count in lacking.items())
