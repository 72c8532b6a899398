"""Hunting a planted bug from a cold start: one process, no database, the first finding ends it."""

import signal
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from math import inf
from pathlib import Path
from statistics import median
from time import process_time
from typing import Any, NamedTuple

import msgspec

from harness.core.errors import UsageError
from harness.core.fingerprint import fingerprint_of_error, slug
from harness.core.mutant import Mutant
from harness.core.registry import target_of
from harness.core.replay import run_log
from harness.core.target import ENGINE
from harness.mutants.verdict import detecting_laws
from harness.search.campaign import Finding, Plan, Worker
from harness.search.findings import report_finding, write
from harness.search.jobs import JobDeath, run_jobs
from harness.search.process import prepare_process
from harness.search.profiles import PROFILES
from harness.search.shrink import Budget, DoesNotFail

FOUND_SHARE = 0.9  # of the seeds, for a mutant to count as found
HANG_CPU_SECONDS = 60.0


class Outcome(StrEnum):
    """How a hunt ended. A law is an invariant, or an error by its name."""

    FOUND = "found"
    BY_ANOTHER = "found by another law"  # than those of the mutant's list
    MISSED = "missed"


class Scope(NamedTuple):
    """From how many seeds each mutant is hunted, for how many CPU seconds, and where its op-logs go.

    A run has hung after `hang_seconds` of CPU, and so has a shrink that takes as many beyond its budget.
    """

    engine: str
    seeds: int
    seconds: float
    out: Path
    hang_seconds: float = HANG_CPU_SECONDS


class Job(NamedTuple):
    """One hunt."""

    mutant: Mutant
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Hunted:
    """How one hunt ended, by which law, and what it cost; the last figures are those of the shrunk op-log at `path`.

    `search_cpu_seconds` is the time until it was found, or all that was spent where nothing was.
    """

    mutant: str
    seed: int
    outcome: Outcome = Outcome.MISSED
    law: str = ""
    runs: int = 0
    search_cpu_seconds: float = 0.0
    shrink_cpu_seconds: float = 0.0
    ops: int = 0
    engine_steps: int = 0
    path: str = ""

    @property
    def is_found(self) -> bool:
        return self.outcome is Outcome.FOUND


@dataclass(frozen=True, slots=True)
class Score:
    """The hunts for one mutant that have ended, of one from each of `seeds` seeds."""

    mutant: Mutant
    seeds: int
    hunts: Sequence[Hunted]

    @property
    def is_found(self) -> bool:
        return len(self.of(Outcome.FOUND)) >= FOUND_SHARE * self.seeds

    @property
    def law(self) -> str | None:
        """The law of its list that told of it most often."""
        laws = Counter(one.law for one in self.of(Outcome.FOUND))
        return next((name for name, _ in laws.most_common(1)), None)

    def of(self, outcome: Outcome) -> list[Hunted]:
        return [one for one in self.hunts if one.outcome is outcome]

    def __str__(self) -> str:
        """As in "found 2 of 3, found by another law 1 of 3"."""
        counts = {outcome: len(self.of(outcome)) for outcome in (Outcome.FOUND, Outcome.BY_ANOTHER)}
        told = [f"{outcome} {count} of {self.seeds}" for outcome, count in counts.items() if count]
        return ", ".join(told) or (Outcome.MISSED if self.hunts else "not hunted")

    def figures(self) -> dict[str, Any]:
        """For scripts: sums over all hunts, then medians over those that found it, or None where none did."""
        return {
            "id": self.mutant.id,
            "source": self.mutant.source,
            "found": self.is_found,
            "invariant": self.law,
            "seeds_found": len(self.of(Outcome.FOUND)),
            "seeds_found_by_another": len(self.of(Outcome.BY_ANOTHER)),
            "seeds": self.seeds,
            "runs": sum(one.runs for one in self.hunts),
            "cpu_seconds": round(sum(one.search_cpu_seconds + one.shrink_cpu_seconds for one in self.hunts), 3),
            "found_cpu_seconds": self._median("search_cpu_seconds"),
            "shrink_cpu_seconds": self._median("shrink_cpu_seconds"),
            "ops": self._median("ops"),
            "engine_steps": self._median("engine_steps"),
            "hunts": [msgspec.to_builtins(one) for one in self.hunts],
        }

    def _median(self, name: str) -> float | None:
        found = self.of(Outcome.FOUND)
        return round(median(getattr(one, name) for one in found), 3) if found else None


def scores_of(mutants: Sequence[Mutant], seeds: int, hunted: Sequence[Hunted]) -> list[Score]:
    return [Score(mutant, seeds, [one for one in hunted if one.mutant == mutant.id]) for mutant in mutants]


def hunts(mutants: Sequence[Mutant], scope: Scope, *, workers: int) -> Iterator[Hunted]:
    """Every mutant from every seed of the scope, as the hunts end; each in a process of its own, `workers` at a time.

    A hunt that hangs or dies has found the bug by that.
    """
    prepare_process()
    warm_up = Plan(scope.engine, PROFILES["smoke"], 0, inf, max_runs=4, machine=ENGINE)
    Worker(warm_up, lambda _: None).work()  # what Hypothesis computes once, no hunt pays
    jobs = [Job(mutant, seed) for mutant in mutants for seed in range(scope.seeds)]
    for (mutant, seed), ended in run_jobs(jobs, partial(_hunt, scope=scope), workers=workers):
        if isinstance(ended, JobDeath):
            yield Hunted(
                mutant=mutant.id,
                seed=seed,
                outcome=Outcome.BY_ANOTHER,
                law=str(ended),
                search_cpu_seconds=ended.cpu_seconds,
            )
        else:
            yield ended


def _hunt(job: Job, scope: Scope) -> Hunted:
    """In a process of its own, which SIGPROF ends where it hangs."""
    try:
        return hunt(job, scope, bound=_end_after)
    except UsageError:
        raise
    except Exception as error:
        law = fingerprint_of_error(error, target_of(scope.engine).code.package)
        return Hunted(mutant=job.mutant.id, seed=job.seed, outcome=Outcome.BY_ANOTHER, law=law)


def _end_after(seconds: float) -> None:
    signal.setitimer(signal.ITIMER_PROF, seconds)


def _unbounded(seconds: float) -> None:
    """Whatever runs next may take any time."""


def hunt(job: Job, scope: Scope, *, bound: Callable[[float], None] = _unbounded) -> Hunted:
    """Plant a bug, look for it for as many seconds of CPU as the scope gives, shrink what is found for as long again.

    For a bug of a checker, what it overlooks is hunted.  `bound` is told how many CPU seconds what runs next may take.
    """
    mutant, seed = job
    out = scope.out / slug(mutant.id)
    prepare_process()
    began = process_time()
    bound(scope.hang_seconds)
    plan = Plan(
        scope.engine,
        PROFILES["default"],
        seed,
        inf,
        machine=mutant.machine,
        mutant=(mutant.overlooks or mutant).id,
        stop_on_first=True,
        model=mutant.model,
    )
    worker = Worker(plan, lambda _: bound(scope.hang_seconds), lambda: process_time() - began > scope.seconds)
    result = worker.work()
    spent = round(process_time() - began, 3)
    searched = Hunted(mutant=mutant.id, seed=seed, runs=result.tallies.runs, search_cpu_seconds=spent)
    if not result.findings:
        return searched
    [finding] = result.findings.values()
    bound(scope.seconds + scope.hang_seconds)
    finding = _by_its_list(mutant, finding)
    try:
        settled = report_finding(finding, out, Budget(cpu_seconds=scope.seconds))
    except DoesNotFail:
        path = write(finding.log, finding.fingerprint, out)
        law = f"{finding.invariant}, which does not fail again"
        return replace(searched, outcome=Outcome.BY_ANOTHER, law=law, path=str(path))
    told = detecting_laws(mutant, settled.log)
    listed = [name for name in told if name in mutant.caught_by]
    return replace(
        searched,
        outcome=Outcome.FOUND if listed else Outcome.BY_ANOTHER if told else Outcome.MISSED,
        law=listed[0] if listed else settled.invariant if told else "",
        search_cpu_seconds=round(settled.found_cpu_seconds, 3),
        shrink_cpu_seconds=round(settled.shrink_cpu_seconds, 3),
        ops=settled.ops,
        engine_steps=settled.engine_steps or 0,
        path=str(settled.path),
    )


def _by_its_list(mutant: Mutant, finding: Finding) -> Finding:
    """The finding under the fingerprint of a law of the mutant's list, where one tells of it beside others.

    A shrink keeps one fingerprint only.
    """
    failure = run_log(finding.log).failure
    for fingerprint in failure.fingerprints if failure is not None else ():
        law = fingerprint.split("/")[0]
        if law in mutant.caught_by:
            return replace(finding, fingerprint=fingerprint, log=finding.log.as_regression(fingerprint))
    return finding
