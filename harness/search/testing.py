"""The actions of the pytest plugin: replay an op-log, fuzz an engine; both return the text of a failure, or ""."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from harness.core.errors import UsageError
from harness.core.oplog import OpLog
from harness.core.registry import target_of
from harness.core.replay import repeat
from harness.report.story import story_lines
from harness.search.campaign import Plan, Worker
from harness.search.deaths import death_of
from harness.search.findings import report_finding
from harness.search.profiles import PROFILES, SHRINK_CPU_SECONDS
from harness.search.shrink import Budget, DoesNotFail


def replayed(path: Path) -> str:
    """The story of an op-log that fails; raises UsageError for one that cannot be read, or not on this machine.

    A log that took a process down is run in a process of its own.
    """
    log = OpLog.load(path)
    death = death_of(log)
    if death is not None:
        return f"{log.header.expected}: run in a process of its own: {death}"
    told = repeat(log, runs=1, trace_origins=True).told
    failure = told.driver.failure
    return "\n".join(map(str, story_lines(told.log.header, failure, path))) if failure is not None else ""


@dataclass(frozen=True)
class Fuzz:
    """How long, from which seed and by which machine an engine is fuzzed."""

    engine: str
    profile: str = "smoke"
    machine: str | None = None
    seed: int = 0
    seconds: float | None = None
    runs: int | None = None

    def plan(self, out: Path) -> Plan:
        """The campaign of one worker; raises UsageError where the engine, the profile or the machine is not known."""
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
        """The line that runs the same campaign."""
        options = {
            "engine": self.engine,
            "profile": self.profile,
            "machine": self.machine,
            "minutes": f"{self.seconds / 60:g}" if self.seconds is not None else None,
            "runs": self.runs,
            "seed": self.seed,
        }
        given = [f"--{name} {value}" for name, value in options.items() if value is not None]
        return f"swarden fuzz {' '.join(given)} --workers 1"


def fuzzed(fuzz: Fuzz, out: Path) -> str:
    """The stories of what a campaign in this process finds, with the line that runs it again."""
    told = [*_told(fuzz.plan(out), out)]
    return "\n\n".join([*told, f"to run it again: {fuzz.command}"]) if told else ""


def _told(plan: Plan, out: Path) -> Iterator[str]:
    result = Worker(plan, lambda _: None).work()
    yield from (f"not deterministic: {place}" for place in result.diverged)
    for finding in result.findings.values():
        try:
            report = report_finding(finding, out, Budget(cpu_seconds=SHRINK_CPU_SECONDS))
        except DoesNotFail as never:
            yield f"not deterministic: {never}"
        else:
            yield "\n".join(map(str, report.story))
