"""The sampling parameters of a request."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from swarden.engine_under_test.errors import ConfigError

MIN_TEMPERATURE = 1e-4  # below it scaled logits exceed the precision of a float64


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """The parameters of a request beside its prompt.

    The random number depends on the seed and the position only, so it is the same in another batch and when a
    retracted request is computed again.  Raises ConfigError for an invalid field; the engine rejects a negative
    `max_new_tokens`.
    """

    max_new_tokens: int = 16
    stop_token_ids: Sequence[int] = ()  # the output ends with the first token that is one of them
    temperature: float = 0.0  # 0: the likeliest token is taken
    top_p: float = 1.0  # the likeliest tokens are cut off where their probabilities add up to this
    top_k: int | None = None  # the likeliest tokens to sample from; None: all
    seed: int | None = None  # None: the transfer id, or the request id
    return_logits: bool = False  # the outputs have the logits of every computed position

    def __post_init__(self) -> None:
        if not (self.temperature == 0 or MIN_TEMPERATURE <= self.temperature < inf):
            raise ConfigError(
                f"temperature: {self.temperature}; want 0 for the likeliest token, or at least {MIN_TEMPERATURE}"
            )
        if not 0 < self.top_p <= 1:
            raise ConfigError(f"top_p: {self.top_p}; want a probability above 0 and at most 1")
        if self.top_k is not None and (type(self.top_k) is not int or self.top_k < 1):
            raise ConfigError(f"top_k: {self.top_k}; want an integer of at least 1, or None for all tokens")
        if self.seed is not None and type(self.seed) is not int:
            raise ConfigError(f"seed: {self.seed!r}; want an integer, or None for the id of the request")

    @property
    def is_greedy(self) -> bool:
        return self.temperature == 0 or self.top_k == 1


GREEDY = SamplingParams()
