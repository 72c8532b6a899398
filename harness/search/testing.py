"""The actions of the pytest plugin: replay an op-log, fuzz an engine; both return the text of a failure, or ""."""

from pathlib import Path
from typing import TypedDict, Unpack

from harness.core.errors import UsageError
from harness.core.oplog import OpLog
from harness.core.registry import target_of
from harness.core.replay import repeat
from harness.report.story import story_lines
from harness.search.campaign import Plan, Worker
from harness.search.findings import report_finding
from harness.search.profiles import PROFILES, SHRINK_CPU_SECONDS
from harness.search.shrink import Budget


def replayed(path: Path) -> str:
    """The story of an op-log that fails; raises UsageError if it cannot be read or run here."""
    again = repeat(OpLog.load(path), runs=1, trace_origins=True).told
    failure = again.driver.failure
    return "\n".join(map(str, story_lines(again.log.header, failure, path))) if failure is not None else ""


class Wanted(TypedDict, total=False):
    """The options of a campaign: its length, its seed and its machine."""

    profile: str
    machine: str | None
    seed: int
    seconds: float
    runs: int


def fuzzed(engine: str, out: Path, **wanted: Unpack[Wanted]) -> str:
    """The stories of the findings of a campaign in this process, with the command that runs it again."""
    profile, machine, seed = wanted.get("profile", "smoke"), wanted.get("machine"), wanted.get("seed", 0)
    seconds, runs = wanted.get("seconds"), wanted.get("runs")
    target = target_of(engine)
    for name, value, known in (("profile", profile, PROFILES), ("machine", machine, (None, *target.machines))):
        if value not in known:
            raise UsageError(f"{name}: {value!r} is not one of {', '.join(filter(None, known))}")
    chosen = PROFILES[profile]
    limit = seconds if seconds is not None else 60 * chosen.minutes if runs is None else float("inf")
    plan = Plan(engine, chosen, seed, limit, runs, machine, out=out)
    result = Worker(plan, lambda _: None).work()
    texts = [f"not deterministic: {run}" for run in result.diverged]
    for finding in result.findings.values():
        report = report_finding(finding, out, Budget(cpu_seconds=SHRINK_CPU_SECONDS))
        texts.append("\n".join(map(str, report.story)))
    if not texts:
        return ""
    named = f"--machine {machine} " if machine is not None else ""
    again = f"swarden fuzz --engine {engine} {named}--profile {profile} --seed {seed} --workers 1"
    return "\n\n".join([*texts, f"to run it again: {again}"])
