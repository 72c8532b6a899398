"""How the output of one request is chosen: how long, from which logits, and until which token."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from engine_under_test.errors import ConfigError

LEAST_TEMPERATURE = 1e-4  # below it logits would have to be stretched beyond what a float64 keeps apart


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """What a client asks for besides its prompt.

    With `temperature` 0 the likeliest token is taken.  Otherwise one is drawn among the `top_k` likeliest
    (None: all) that come first up to a probability of `top_p` together; `seed` (None: the transfer id, or its own id)
    and the position decide the draw, so that it comes out the same in another batch or after a restart.  With
    `return_logits` outputs carry the logits of every position that was computed.  Raises ConfigError with the
    field, the value and what would be right; `max_new_tokens` below 0 is the engine's to reject.
    """

    max_new_tokens: int = 16
    stop_token_ids: Sequence[int] = ()
    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int | None = None
    seed: int | None = None
    return_logits: bool = False

    def __post_init__(self) -> None:
        if not (self.temperature == 0 or LEAST_TEMPERATURE <= self.temperature < inf):
            raise ConfigError(
                f"temperature: {self.temperature}; want 0 for the likeliest token, or at least {LEAST_TEMPERATURE}"
            )
        if not 0 < self.top_p <= 1:
            raise ConfigError(f"top_p: {self.top_p}; want a share above 0, at most 1")
        if self.top_k is not None and (type(self.top_k) is not int or self.top_k < 1):
            raise ConfigError(f"top_k: {self.top_k}; want a whole number of at least 1 token, or None for all")
        if self.seed is not None and type(self.seed) is not int:
            raise ConfigError(f"seed: {self.seed!r}; want a whole number, or None for the request's id")

    @property
    def is_greedy(self) -> bool:
        return self.temperature == 0 or self.top_k == 1


GREEDY = SamplingParams()
