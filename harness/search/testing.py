"""The actions of the pytest plugin: replay an op-log, fuzz an engine; both return the text of a failure, or ""."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

from swarden.harness.core.errors import UsageError
from swarden.harness.core.oplog import OpLog
from swarden.harness.core.registry import target_of
from swarden.harness.core.replay import replay
from swarden.harness.report.story import story_lines
from swarden.harness.search.campaign import Plan, Worker
from swarden.harness.search.deaths import death_of
from swarden.harness.search.findings import report_finding
from swarden.harness.search.process import same_draws
from swarden.harness.search.profiles import PROFILES, SHRINK_CPU_SECONDS, SHRINK_SECONDS
from swarden.harness.search.shrink import ShrinkBudget


def replayed(path: Path) -> str:
    """The story of an op-log that fails, or ""; raises UsageError if the log cannot be read or its engine is missing.

    A log whose failure is a crash or a hang is run in its own process.
    """
    log = OpLog.load(path)
    death = death_of(log)
    if death is not None:
        return f"{log.header.expected}: run in a process of its own, which {death.how}"
    failure = replay(log, trace_origins=True).driver.failure
    return "\n".join(map(str, story_lines(log.header, failure, path))) if failure is not None else ""


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


def fuzzed(fuzz: Fuzz, out: Path) -> str:
    """Run a campaign. Returns the stories of its findings and the command that runs it again; "" without findings."""
    stories = [*_stories(fuzz, out)]
    return "\n\n".join([*stories, f"to run it again: {fuzz.command}"]) if stories else ""


def _stories(fuzz: Fuzz, out: Path) -> Iterator[str]:
    with same_draws():
        result = Worker(fuzz.plan(out), lambda _: None).work()
    until = monotonic() + fuzz.shrink_seconds
    if not result.tallies.runs and not result.target_faults:
        yield "no run was made, so nothing is tested: the time was over before the first; give more seconds"
    yield from result.target_faults.values()
    yield from (f"not deterministic: {place}" for place in result.diverged)
    for finding in result.findings.values():
        budget = ShrinkBudget(cpu_seconds=SHRINK_CPU_SECONDS)
        report = report_finding(finding, out, budget, is_stopped=lambda: monotonic() > until)
        yield f"not deterministic: {report.why_flaky}" if report.why_flaky else "\n".join(map(str, report.story))
