"""Hunting a planted bug from a cold start: one process, no database, the first finding ends it."""

from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from time import process_time
from typing import Any, NamedTuple

from harness.campaign import Plan, Worker
from harness.findings import settle
from harness.mutants.catalog import BY_ID
from harness.mutants.mutant import Mutant
from harness.process import prepare_process
from harness.profiles import PROFILES
from harness.shrink import Budget, DoesNotFail
from harness.verdict import told_by

FOUND_SHARE = 0.9  # of the seeds, for a mutant to count as found
WALL_PER_CPU_SECOND = 4  # a machine that others use too is waited for so long


class Scope(NamedTuple):
    """From how many seeds each mutant is hunted, for how long, and where its op-logs go."""

    seeds: int
    seconds: float
    out: Path


@dataclass(frozen=True, slots=True)
class Hunted:
    """How one hunt ended; where something was found, the figures are those of the shrunk op-log at `path`.

    `invariant` is who told of the bug, or of whatever else went wrong where nobody of its list spoke.
    """

    mutant: str
    seed: int
    is_caught: bool = False
    invariant: str = ""
    found_cpu_seconds: float = 0.0
    shrink_cpu_seconds: float = 0.0
    ops: int = 0
    engine_steps: int = 0
    path: str = ""


@dataclass(frozen=True, slots=True)
class Score:
    """All hunts for one mutant; the figures are medians over the seeds that found it."""

    mutant: Mutant
    hunts: Sequence[Hunted]

    @property
    def caught(self) -> list[Hunted]:
        return [one for one in self.hunts if one.is_caught]

    @property
    def is_found(self) -> bool:
        return len(self.caught) >= FOUND_SHARE * len(self.hunts)

    @property
    def invariant(self) -> str | None:
        """Who told of it most often."""
        return next((name for name, _ in Counter(one.invariant for one in self.caught).most_common(1)), None)

    def figures(self) -> dict[str, Any]:
        """What scripts read; nothing stands where no seed found it."""
        return {
            "id": self.mutant.id,
            "source": self.mutant.source,
            "found": self.is_found,
            "invariant": self.invariant,
            "seeds_found": len(self.caught),
            "seeds": len(self.hunts),
            "found_cpu_seconds": self._median("found_cpu_seconds"),
            "shrink_cpu_seconds": self._median("shrink_cpu_seconds"),
            "ops": self._median("ops"),
            "engine_steps": self._median("engine_steps"),
        }

    def _median(self, name: str) -> float | None:
        return round(median(getattr(one, name) for one in self.caught), 3) if self.caught else None


def hunt(mutant: Mutant, *, seed: int, seconds: float, out: Path) -> Hunted:
    """Plant a bug, look for it for at most `seconds` of CPU, shrink what is found for as long again.

    For a bug of a checker, what it overlooks is hunted.
    """
    prepare_process()
    sought, until = mutant.overlooks or mutant, process_time() + seconds
    plan = Plan(
        PROFILES["default"],
        seed,
        seconds * WALL_PER_CPU_SECOND,
        machine=mutant.machine,
        mutant=sought.id,
        stop_on_first=True,
        model=mutant.model,
    )
    result = Worker(plan, lambda _: None, lambda: process_time() > until).work()
    if not result.findings:
        return Hunted(mutant.id, seed)
    [finding] = result.findings.values()
    try:
        settled = settle(finding, out, Budget(cpu_seconds=seconds))
    except DoesNotFail as lost:
        return Hunted(mutant.id, seed, invariant=str(lost))
    told = told_by(mutant, settled.log)
    by_its_list = [name for name in told if name in mutant.caught_by]
    return Hunted(
        mutant.id,
        seed,
        bool(by_its_list),
        next(iter(by_its_list), settled.invariant),
        settled.found_cpu_seconds,
        settled.shrink_cpu_seconds,
        settled.ops,
        settled.engine_steps,
        str(settled.path),
    )


def hunt_all(mutants: Sequence[Mutant], scope: Scope, *, workers: int, tell: Callable[[Score], None]) -> list[Score]:
    """Every mutant from every seed of the scope; workers share the mutants, and one has all seeds of its own."""
    search = partial(_hunt_from_each, scope)
    names = [mutant.id for mutant in mutants]
    scores = []
    if workers == 1:
        for name in names:
            scores.append(search(name))
            tell(scores[-1])
        return scores
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        for score in pool.map(search, names):
            scores.append(score)
            tell(score)
    return scores


def _hunt_from_each(scope: Scope, name: str) -> Score:
    mutant, out = BY_ID[name], scope.out / name
    return Score(mutant, [hunt(mutant, seed=seed, seconds=scope.seconds, out=out) for seed in range(scope.seeds)])
