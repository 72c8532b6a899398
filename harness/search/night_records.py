"""The records of what ran in a night: its canaries, shards and phases."""

import msgspec

from swarden.harness.search.result import Tallies


class Canary(msgspec.Struct, frozen=True, kw_only=True):
    """A planted bug that one shard must find; `law` is the law that found it, "" if it was missed.

    `mutant` is "" if the target has no canary that fits the engine.
    """

    engine: str
    mutant: str
    law: str = ""
    runs: int = 0
    seconds: float = 0.0


class ShardRecord(msgspec.Struct, kw_only=True):
    """A finished shard: `batches` batches of the campaign with the night's seed, from `first_batch`.

    `node` is the host that ran it.  `seconds` are without the boot of the engine.  `replaced` describes the deaths of
    its worker processes, `unexplained_deaths` those that left no log of a run.
    """

    engine: str
    ordinal: int
    first_batch: int
    batches: int
    node: str = ""
    tallies: Tallies
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    replayed: list[str] = []  # the logs of the corpus that passed
    replaced: list[str] = []
    unexplained_deaths: list[str] = []
    diverged: list[str] = []


class PhaseRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A finished phase: its line on the terminal, its wall-clock seconds, and the CPU seconds of the coordinator."""

    name: str
    line: str
    seconds: float
    cpu_seconds: float
