"""Who gives way when a decode step finds too few pages, and the ratio that learns from it."""

from collections.abc import Sequence

from engine_under_test.config import EngineConfig
from engine_under_test.request import Request

RETRACTION_HEADROOM = 20  # tokens per survivor that the ratio foresees after a retraction


def retraction_order(candidates: Sequence[Request]) -> list[Request]:
    """The least important goes first; ties: who has generated least, the longest prompt, the latest arrival."""
    return sorted(
        candidates, key=lambda request: (request.priority, request.num_outputs, -request.prompt_len, -request.id)
    )


class NewTokenRatio:
    """How much of what requests may still generate admission counts on; between its floor and 1."""

    def __init__(self, config: EngineConfig) -> None:
        self._initial = config.new_token_ratio
        self._floor = config.new_token_ratio_floor
        self._step = (self._initial - self._floor) / config.new_token_ratio_decay_steps
        self.value = self._initial

    def decay(self) -> None:
        """A decode step went well."""
        self.value = max(self._floor, self.value - self._step)

    def learn(self, survivors: Sequence[Request]) -> None:
        """A retraction was needed: count on what the survivors have shown, and some headroom."""
        decoded = sum(request.num_outputs for request in survivors)
        asked = sum(request.sampling.max_new_tokens for request in survivors)
        foreseen = (decoded + RETRACTION_HEADROOM * len(survivors)) / (asked + 1)
        self.value = max(self._floor, min(1.0, foreseen))

    def reset(self) -> None:
        """Nothing is left to learn from."""
        self.value = self._initial
