"""Hunting a planted bug from a cold start: one worker, no database, the first finding ends it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.campaign import Plan, Worker
from harness.findings import Settled, settle
from harness.mutants.mutant import Mutant
from harness.process import prepare_process
from harness.profiles import PROFILES
from harness.shrink import Budget


@dataclass(frozen=True)
class Hunted:
    """How one hunt ended; `settled` is None where nothing was found in time."""

    mutant: Mutant
    seed: int
    settled: Settled | None

    @property
    def is_caught(self) -> bool:
        """Found, and by an invariant (or an engine error) that may catch this bug."""
        return self.settled is not None and self.settled.is_caught_by(self.mutant.caught_by)

    def figures(self) -> dict[str, Any]:
        figures: dict[str, Any] = {"id": self.mutant.id, "seed": self.seed, "found": self.is_caught}
        if self.settled is not None:
            figures |= {
                "invariant": self.settled.invariant,
                "found_cpu_seconds": round(self.settled.found_cpu_seconds, 3),
                "shrink_cpu_seconds": round(self.settled.shrink_cpu_seconds, 3),
                "ops": self.settled.ops,
                "engine_steps": self.settled.engine_steps,
                "path": str(self.settled.path),
            }
        return figures


def hunt(mutant: Mutant, *, seed: int, seconds: float, out: Path) -> Hunted:
    """Plant a bug, look for it for at most `seconds`, shrink what is found for as long again."""
    prepare_process()
    plan = Plan(PROFILES["default"], seed, seconds, machine=mutant.machine, mutant=mutant.id, stop_on_first=True)
    result = Worker(plan, lambda _: None).work()
    if not result.findings:
        return Hunted(mutant, seed, None)
    [finding] = result.findings.values()
    return Hunted(mutant, seed, settle(finding, out, Budget(cpu_seconds=seconds)))
