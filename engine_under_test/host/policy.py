"""When the host gets a copy of what is cached."""

from dataclasses import dataclass

from engine_under_test.config import EngineConfig

NUM_HITS = {"write_through": 1, "write_through_selective": 2}  # the publishing is the first


@dataclass(frozen=True, slots=True)
class Policy:
    """Write-through copies a node once it has so many `hits`, write-back (None) when it is evicted.

    A load that saves fewer than `least_load_len` tokens is not worth its while.
    """

    num_hits: int | None
    least_load_len: int

    @classmethod
    def for_config(cls, config: EngineConfig) -> "Policy":
        return cls(NUM_HITS.get(config.host_policy), config.load_back_threshold)

    @property
    def writes_back(self) -> bool:
        return self.num_hits is None
