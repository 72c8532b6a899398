"""Searches for a planted bug from a cold start, in one process, without a database, up to the first finding."""

import signal
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from pathlib import Path
from statistics import median
from time import process_time
from typing import Any, NamedTuple

import msgspec

from swarden.harness.core.errors import UsageError
from swarden.harness.core.fingerprint import fingerprint_of_error, law_of, slug
from swarden.harness.core.mutant import Mutant
from swarden.harness.core.registry import target_of
from swarden.harness.core.replay import failure_like, run_log
from swarden.harness.core.running_log import RunningLog, last_run
from swarden.harness.core.target import ENGINE
from swarden.harness.core.target_fault import TargetFault
from swarden.harness.search.campaign import Plan, Worker
from swarden.harness.search.findings import Reporting, save_unshrunk, write
from swarden.harness.search.jobs import run_jobs
from swarden.harness.search.mutants.kill_matrix import detecting_laws
from swarden.harness.search.process import prepare_process
from swarden.harness.search.result import Finding, Result
from swarden.harness.search.shrink.shrink import ShrinkBudget
from swarden.harness.search.traffic.profiles import PROFILES

FOUND_SHARE = 0.9  # of the seeds, for a mutant to count as found
HANG_CPU_SECONDS = 60.0


class SearchOutcome(StrEnum):
    """How a search for a mutant ended.  A law is an invariant, or an error by its name."""

    FOUND = "found"
    BY_ANOTHER = "found by another law"  # one that the mutant's `caught_by` does not name
    MISSED = "missed"


class Scope(NamedTuple):
    """The engine, the number of seeds for each mutant, the folder of the op-logs, and a corpus to run first.

    `seconds` is the CPU time of a search, and again of a shrink.  A step that takes `hang_seconds` of CPU has hung, and
    so has a shrink that exceeds its budget by that time.
    """

    engine: str
    seeds: int
    seconds: float
    out: Path
    hang_seconds: float = HANG_CPU_SECONDS
    corpus: Path | None = None


class SearchJob(NamedTuple):
    """One search: the mutant to plant, and the seed."""

    mutant: Mutant
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchResult:
    """The outcome of one search, the law that found the bug (or the death of the process), and the cost.

    `path` is the shrunk op-log, or the whole one if the failure was not reproduced, or if the process died in that run
    or in its shrink; "" without an op-log.

    `search_cpu_seconds` is the time until the bug was found, or the whole time if it was missed; that of a process that
    has died is wall-clock time. `ops` and `engine_steps` count those of the shrunk op-log; 0 without one.
    """

    mutant: str
    seed: int
    outcome: SearchOutcome = SearchOutcome.MISSED
    law: str = ""
    runs: int = 0
    search_cpu_seconds: float = 0.0
    shrink_cpu_seconds: float = 0.0
    ops: int = 0
    engine_steps: int = 0
    path: str = ""

    @property
    def is_found(self) -> bool:
        return self.outcome is SearchOutcome.FOUND

    @property
    def cpu_seconds(self) -> float:
        return self.search_cpu_seconds + self.shrink_cpu_seconds


@dataclass(frozen=True, slots=True)
class Score:
    """The finished searches for one mutant; one search is planned for each of `seeds` seeds."""

    mutant: Mutant
    seeds: int
    searches: Sequence[SearchResult]

    @property
    def is_found(self) -> bool:
        return len(self.of(SearchOutcome.FOUND)) >= FOUND_SHARE * self.seeds

    @property
    def law(self) -> str | None:
        """The law of the mutant's `caught_by` that found it most often; None if none did."""
        laws = Counter(search.law for search in self.of(SearchOutcome.FOUND))
        return next((name for name, _ in laws.most_common(1)), None)

    def of(self, outcome: SearchOutcome) -> list[SearchResult]:
        return [search for search in self.searches if search.outcome is outcome]

    def __str__(self) -> str:
        """The outcomes as text, as in "found 2 of 3, found by another law 1 of 3"."""
        counts = {outcome: len(self.of(outcome)) for outcome in (SearchOutcome.FOUND, SearchOutcome.BY_ANOTHER)}
        texts = [f"{outcome} {count} of {self.seeds}" for outcome, count in counts.items() if count]
        return ", ".join(texts) or (SearchOutcome.MISSED if self.searches else "not searched for")

    def figures(self) -> dict[str, Any]:
        """The figures for scripts: sums over all searches, and medians over those that found the bug, or None."""
        return {
            "id": self.mutant.id,
            "source": self.mutant.source,
            "found": self.is_found,
            "invariant": self.law,
            "seeds_found": len(self.of(SearchOutcome.FOUND)),
            "seeds_found_by_another": len(self.of(SearchOutcome.BY_ANOTHER)),
            "seeds": self.seeds,
            "runs": sum(search.runs for search in self.searches),
            "cpu_seconds": round(sum(search.cpu_seconds for search in self.searches), 3),
            "found_cpu_seconds": self._median("search_cpu_seconds"),
            "shrink_cpu_seconds": self._median("shrink_cpu_seconds"),
            "ops": self._median("ops"),
            "engine_steps": self._median("engine_steps"),
            "searches": [msgspec.to_builtins(search) for search in self.searches],
        }

    def _median(self, name: str) -> float | None:
        hits = self.of(SearchOutcome.FOUND)
        return round(median(getattr(search, name) for search in hits), 3) if hits else None


def scores_of(mutants: Sequence[Mutant], seeds: int, results: Sequence[SearchResult]) -> list[Score]:
    """The score of each mutant, in the order of the mutants."""
    return [Score(mutant, seeds, [result for result in results if result.mutant == mutant.id]) for mutant in mutants]


def searches(mutants: Sequence[Mutant], scope: Scope, *, workers: int) -> Iterator[SearchResult]:
    """Search for every mutant from every seed of the scope, each in its own process; `workers` searches run at a time.

    A search that hangs or dies counts as found by another law, and the op-log of its current run is kept.
    """
    prepare_process()
    warm_up = Plan(engine=scope.engine, profile=PROFILES["smoke"], max_runs=4, machine=ENGINE)
    Worker(warm_up, lambda _: None).work()  # Hypothesis computes its tables here, not in a search
    jobs = [SearchJob(mutant, seed) for mutant in mutants for seed in range(scope.seeds)]
    try:
        for job, ended in run_jobs(jobs, partial(_search, scope=scope), workers=workers):
            result = ended if isinstance(ended, SearchResult) else _found_by(job, str(ended), ended.seconds)
            is_lost = result.outcome is SearchOutcome.BY_ANOTHER and not result.path
            if is_lost and (log := last_run(_running(job, scope))) is not None:
                path = save_unshrunk(log, result.law, scope.out / slug(job.mutant.id), job.seed)
                result = replace(result, path=str(path or ""))
            yield result
    finally:
        for job in jobs:
            _running(job, scope).unlink(missing_ok=True)


def _running(job: SearchJob, scope: Scope) -> Path:
    """The file with the current run of a search."""
    return scope.out / f".{slug(job.mutant.id)}-seed{job.seed}.running.oplog"


def _found_by(job: SearchJob, law: str, spent: float = 0.0) -> SearchResult:
    """The result of a search whose process has ended with an error, or died."""
    outcome = SearchOutcome.BY_ANOTHER
    return SearchResult(mutant=job.mutant.id, seed=job.seed, outcome=outcome, law=law, search_cpu_seconds=spent)


def _search(job: SearchJob, scope: Scope) -> SearchResult:
    """Run a search in its own process; SIGPROF ends the process if it hangs."""
    try:
        return searched(job, scope, limit_cpu=_end_after)
    except TargetFault as fault:  # perhaps of a capture, because of the planted bug
        law = fault.fingerprint
    except UsageError:
        raise
    except Exception as error:
        code = target_of(scope.engine).code
        law = fingerprint_of_error(error, code.package, code.core)
    return _found_by(job, law)


def _end_after(seconds: float) -> None:
    signal.setitimer(signal.ITIMER_PROF, seconds)


def searched(job: SearchJob, scope: Scope, *, limit_cpu: Callable[[float], None] = lambda _: None) -> SearchResult:
    """Plant a bug, search for it within the CPU seconds of the scope, and shrink the finding within as many again.

    Failures that the engine has without the mutant do not count. For a checker bug, the search is for the mutant that
    the checker overlooks.  `limit_cpu` is called with the CPU seconds of the next step, or of the shrink.
    """
    mutant, seed = job
    out, planted = scope.out / slug(mutant.id), mutant.overlooks or mutant
    prepare_process()
    start = process_time()
    limit_cpu(scope.hang_seconds)
    plan = Plan(
        engine=scope.engine,
        profile=PROFILES["default"],
        seed=seed,
        machine=mutant.machine,
        mutant=planted.id,
        model=mutant.model,
        corpus=scope.corpus,
    )
    running = RunningLog(_running(job, scope))
    runs, finding = search_for(planted, plan, scope.seconds, lambda: limit_cpu(scope.hang_seconds), running)
    spent = round(process_time() - start, 3)
    result = SearchResult(mutant=mutant.id, seed=seed, runs=runs, search_cpu_seconds=spent)
    if finding is None:
        return result
    limit_cpu(scope.seconds + scope.hang_seconds)
    finding = _with_listed_law(mutant, finding)
    running.begin(finding.log.header)
    for op in finding.log.ops:
        running.note(op)
    report = Reporting(out, ShrinkBudget(cpu_seconds=scope.seconds)).report(finding)
    if report.why_flaky:
        path = write(finding.log, finding.fingerprint, out)
        law = f"{finding.invariant}, which does not fail again"
        return replace(result, outcome=SearchOutcome.BY_ANOTHER, law=law, path=str(path))
    laws = detecting_laws(mutant, report.log)
    listed = [name for name in laws if name in mutant.caught_by]
    return replace(
        result,
        outcome=SearchOutcome.FOUND if listed else SearchOutcome.BY_ANOTHER if laws else SearchOutcome.MISSED,
        law=listed[0] if listed else report.invariant if laws else "",
        search_cpu_seconds=round(report.found_cpu_seconds, 3),
        shrink_cpu_seconds=round(report.shrink_cpu_seconds, 3),
        ops=report.ops,
        engine_steps=report.engine_steps or 0,
        path=str(report.path or ""),
    )


def search_for(
    mutant: Mutant, plan: Plan, seconds: float, heartbeat: Callable[[], None], running: RunningLog
) -> tuple[int, Finding | None]:
    """The number of runs within these CPU seconds, and the first failure that the engine has only with the mutant."""
    start = process_time()
    new: list[Finding] = []

    def look(result: Result) -> None:
        for finding in result.findings.values():
            with mutant.removed():
                without = failure_like(finding.log.with_header(mutant=None), finding.fingerprint)
            if without is None:
                new.append(finding)
        for fingerprint, text in result.target_faults.items():
            raise TargetFault(text, fingerprint)

    def is_over() -> bool:
        return bool(new) or process_time() - start > seconds

    result = Worker(plan, look, is_over, heartbeat=lambda _: heartbeat(), running=running).work()
    return result.tallies.runs, next(iter(new), None)


def _with_listed_law(mutant: Mutant, finding: Finding) -> Finding:
    """The finding with the fingerprint of a law of the mutant's `caught_by`, if the failure has one.

    A shrink keeps one fingerprint only.
    """
    failure = run_log(finding.log).failure
    for fingerprint in failure.fingerprints if failure is not None else ():
        if law_of(fingerprint) in mutant.caught_by:
            return finding.changed(fingerprint=fingerprint, log=finding.log.as_regression(fingerprint))
    return finding
