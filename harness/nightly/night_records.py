"""The records of what ran in a night: its canaries, shards and phases."""

import msgspec

from swarden.harness.report.wording import counted
from swarden.harness.search.result import Tallies

CANARY_RUNS = 200  # runs after which a planted bug counts as missed; each canary was found within 14


class Canary(msgspec.Struct, frozen=True, kw_only=True):
    """A planted bug that a search must find."""

    engine: str
    mutant: str  # "" if the target has no canary that fits the engine
    law: str = ""  # that found it; "" if it was not found
    runs: int = 0
    seconds: float = 0.0  # without the boot of the engine

    @property
    def is_missed(self) -> bool:
        """Whether it was not found in enough runs; fewer prove nothing."""
        return bool(self.mutant) and not self.law and self.runs >= CANARY_RUNS

    @property
    def result(self) -> str:
        if not self.mutant:
            return "no planted bug fits this release"
        if self.law:
            return f"{self.mutant} found by {self.law} after {counted(self.runs, 'run')}"
        if self.is_missed:
            return f"{self.mutant} missed in {counted(self.runs, 'run')}"
        return f"{self.mutant} not found in {self.seconds:.0f} s, {self.runs} of the {CANARY_RUNS} runs that judge it"


class ShardRecord(msgspec.Struct, kw_only=True):
    """A finished shard: `batches` batches of the campaign with the night's seed, from `first_batch`."""

    engine: str
    ordinal: int
    first_batch: int
    batches: int
    node: str = ""  # the host that ran it
    tallies: Tallies
    seconds: float = 0.0  # without the boot of the engine
    cpu_seconds: float = 0.0
    replayed: list[str] = []  # the logs of the corpus that passed
    replaced: list[str] = []  # the deaths of its worker processes
    unexplained_deaths: list[str] = []  # those that left no log of a run
    diverged: list[str] = []


class PhaseRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A finished phase: its line on the terminal, its wall-clock seconds, and the CPU seconds of the coordinator."""

    name: str
    line: str
    seconds: float
    cpu_seconds: float
