"""When a cached node is copied to the host, and when it is loaded."""

from dataclasses import dataclass

from swarden.engine_under_test.config import EngineConfig

NUM_HITS = {"write_through": 1, "write_through_selective": 2}  # the insertion is the first


@dataclass(frozen=True, slots=True)
class Policy:
    """Write-through copies a node after `num_hits` hits, write-back (None) when the node is evicted.

    A prefix is loaded if that saves at least `load_back_threshold` tokens, or if it ends with tombstones.
    """

    num_hits: int | None
    load_back_threshold: int

    @classmethod
    def for_config(cls, config: EngineConfig) -> "Policy":
        return cls(NUM_HITS.get(config.host_policy), config.load_back_threshold)

    @property
    def writes_back(self) -> bool:
        return self.num_hits is None
