"""Retraction: which request is retracted when a decode step lacks pages, and the new-token ratio."""

from collections.abc import Sequence

from swarden.engine_under_test.config import EngineConfig
from swarden.engine_under_test.request import Request

RETRACTION_HEADROOM = 20  # tokens per remaining request that the ratio foresees after a retraction


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
