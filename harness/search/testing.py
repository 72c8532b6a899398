"""Replays and campaigns in this process: `swarden.replay` and `swarden.fuzz`, and the texts of the pytest plugin."""

from dataclasses import dataclass, replace
from pathlib import Path
from time import monotonic
from typing import Any

from swarden.harness.core.admission import load_log
from swarden.harness.core.errors import UsageError
from swarden.harness.core.oplog import OpLog
from swarden.harness.core.registry import target_of
from swarden.harness.core.replay import RUNS, Replays, repeat
from swarden.harness.core.versions import check_version
from swarden.harness.report.decisions import decision_tracer
from swarden.harness.report.story import story_lines
from swarden.harness.search.campaign import Plan, Worker
from swarden.harness.search.deaths import death_of, replays_of
from swarden.harness.search.findings import FINDINGS, report_finding
from swarden.harness.search.outcome import Outcome
from swarden.harness.search.process import same_draws
from swarden.harness.search.result import Finding
from swarden.harness.search.shrink.shrink import ShrinkBudget
from swarden.harness.search.traffic.profiles import PROFILES, SHRINK_CPU_SECONDS, SHRINK_SECONDS


def replay(log: Path | str | OpLog, *, engine: str | None = None, runs: int = RUNS) -> Replays:
    """Run an op-log in this process; returns its `verdict`, its `fingerprints`, and the `story` of its failure.

    The log is a file, or written as code.  Of a file, `engine` names another engine or version than the log does.  A
    log whose failure is a crash or a hang is run in its own process.  Raises UsageError, with one line, if the log
    cannot be read or its engine is missing.
    """
    if isinstance(log, OpLog):
        return _replays(log, None, runs)
    path = Path(log)
    log = load_log(path, engine=engine)
    if engine is None:
        check_version(path, log.header, or_else=f"give engine={log.header.engine!r} to replay it on the installed one")
    return _replays(log, path, runs)


def replayed(path: Path) -> str:
    """The story of an op-log's failure on the installed version, or ""; raises UsageError as `replay` does."""
    return "\n".join(_replays(load_log(path), path, 1).story)


def _replays(log: OpLog, path: Path | None, runs: int) -> Replays:
    death = death_of(log)
    if death is not None:
        told = f"{log.header.expected}: run in a process of its own, which {death.how}"
        return replace(replays_of(death, log), story=(told,))
    replays = repeat(log, runs, tracer_of=decision_tracer)
    story = story_lines(log.header, replays.failure, path) if replays.failure is not None else ()
    return replace(replays, story=tuple(map(str, story)))


@dataclass(frozen=True)
class Fuzz:
    """The options of a campaign in this process.

    If `seconds` is None, the profile sets the time limit; with `runs` there is no time limit.  All findings are shrunk
    within `shrink_seconds` behind it.
    """

    engine: str
    profile: str = "smoke"
    machine: str | None = None
    seed: int = 0
    seconds: float | None = None
    runs: int | None = None
    shrink_seconds: float = SHRINK_SECONDS

    def plan(self, out: Path) -> Plan:
        """The plan of one worker; raises UsageError if the engine, the profile or the machine is unknown."""
        machines = (None, *target_of(self.engine).machines)
        for name, value, known in (("profile", self.profile, PROFILES), ("machine", self.machine, machines)):
            if value not in known:
                raise UsageError(f"{name}: {value!r} is not one of {', '.join(filter(None, known))}")
        chosen = PROFILES[self.profile]
        limit = 60 * chosen.minutes if self.runs is None else float("inf")
        seconds = self.seconds if self.seconds is not None else limit
        return Plan(self.engine, chosen, self.seed, seconds, self.runs, self.machine, out=out)

    @property
    def command(self) -> str:
        """The command line that runs the same campaign."""
        options = {
            "engine": self.engine,
            "profile": self.profile,
            "machine": self.machine,
            "minutes": f"{self.seconds / 60:g}" if self.seconds is not None else None,
            "runs": self.runs,
            "seed": self.seed,
            "shrink-seconds": f"{self.shrink_seconds:g}" if self.shrink_seconds != SHRINK_SECONDS else None,
        }
        given = [f"--{name} {value}" for name, value in options.items() if value is not None]
        return f"swarden fuzz {' '.join(given)} --workers 1"


def fuzz(engine: str, *, out: Path | str = FINDINGS, **options: Any) -> Outcome:
    """Fuzz an engine in this process; returns the `verdict`, the `findings`, and the figures in `summary()`.

    A finding has its `fingerprint`, its `story`, and the `path` of its op-log in the folder `out`.  The options are
    `profile` (smoke), `machine` (all), `seed` (0), `seconds` (those of the profile, or no limit if there are `runs`),
    `runs` (no limit) and `shrink_seconds` for all findings (120).  Raises UsageError, with one line, if something that
    they name is unknown.
    """
    asked, folder = Fuzz(engine, **options), Path(out)
    plan = asked.plan(folder)
    with same_draws():
        result = Worker(plan, lambda _: None).work()
    findings, not_reproduced, until = list[Finding](), list[str](), monotonic() + asked.shrink_seconds
    for finding in result.findings.values():
        budget = ShrinkBudget(cpu_seconds=SHRINK_CPU_SECONDS)
        report = report_finding(finding, folder, budget, is_stopped=lambda: monotonic() > until)
        if report.cause.bugs:
            result.tallies.attribute(report.fingerprint, report.cause.name)
        elif report.why_flaky:
            not_reproduced.append(report.why_flaky)
        else:
            findings.append(report)
    return Outcome(plan, asked.command, result, findings, not_reproduced)


def failure_text(outcome: Outcome) -> str:
    """The stories of the findings of a campaign and the command that runs it again; "" without findings."""
    result, texts = outcome.result, list[str]()
    if not result.tallies.runs and not result.target_faults:
        texts.append("no run was made, so nothing is tested: the time was over before the first; give more seconds")
    texts += [*result.target_faults.values(), *(f"not deterministic: {place}" for place in outcome.diverged)]
    texts += ["\n".join(map(str, finding.story)) for finding in outcome.findings]
    return "\n\n".join([*texts, f"to run it again: {outcome.command}"]) if texts else ""
