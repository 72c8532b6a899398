"""Which running requests yield: to a waiting request of higher priority, or when a decode step lacks pages.

The second is a retraction, and sets the new-token ratio.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from swarden.engine_under_test.config import EngineConfig
from swarden.engine_under_test.pools.paired import Need
from swarden.engine_under_test.request import Request

RETRACTION_HEADROOM = 20  # tokens per remaining request that the ratio foresees after a retraction


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
    chosen = sorted(candidates, key=lambda candidate: (candidate.request.priority, -candidate.request.id))
    if not _cover(chosen, lacking):
        return []
    for candidate in reversed(list(chosen)):
        remaining = [other for other in chosen if other is not candidate]
        if _cover(remaining, lacking):
            chosen = remaining
    return [candidate.request for candidate in chosen]


def _cover(yields: Sequence[Yield], lacking: Need) -> bool:
    """Do these requests together free enough units?"""
    return all(sum(candidate.of(pool) for candidate in yields) >= count for pool, count in lacking.items())


def retraction_order(candidates: Sequence[Request]) -> list[Request]:
    """The candidates by lowest priority; ties: fewest output tokens, longest prompt, latest arrival."""
    return sorted(
        candidates, key=lambda request: (request.priority, request.num_outputs, -request.prompt_len, -request.id)
    )


class NewTokenRatio:
    """The share of the remaining output tokens that admission counts on; between its floor and 1."""

    def __init__(self, config: EngineConfig) -> None:
        self._initial = config.new_token_ratio
        self._floor = config.new_token_ratio_floor
        self._step = (self._initial - self._floor) / config.new_token_ratio_decay_steps
        self.value = self._initial

    def decay(self) -> None:
        """Lower the ratio after a decode step without a shortage."""
        self.value = max(self._floor, self.value - self._step)

    def learn(self, remaining: Sequence[Request]) -> None:
        """Set the ratio after a retraction to the share that the remaining requests generated, plus headroom."""
        decoded = sum(request.num_outputs for request in remaining)
        asked = sum(request.sampling.max_new_tokens for request in remaining)
        foreseen = (decoded + RETRACTION_HEADROOM * len(remaining)) / (asked + 1)
        self.value = max(self._floor, min(1.0, foreseen))

    def reset(self) -> None:
        """Restore the initial ratio, when no request is active."""
        self.value = self._initial
