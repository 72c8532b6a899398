"""Replays and campaigns in this process: `swarden.replay` and `swarden.fuzz`, and the texts of the pytest plugin."""

from dataclasses import replace
from math import inf
from pathlib import Path

from swarden.harness.core.admission import check_version, load_log
from swarden.harness.core.errors import UsageError
from swarden.harness.core.oplog import OpLog
from swarden.harness.core.registry import target_of
from swarden.harness.core.replay import RUNS, Replays
from swarden.harness.search.campaign import Plan
from swarden.harness.search.driving import InProcess, driving
from swarden.harness.search.findings import FINDINGS
from swarden.harness.search.outcome import Outcome
from swarden.harness.search.replaying import replayed as in_this_process
from swarden.harness.search.traffic.profiles import PROFILES, SHRINK_SECONDS


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
    replays, story = in_this_process(log, path, runs)
    return replace(replays, story=tuple(map(str, story)))


def fuzz(
    engine: str,
    *,
    out: Path | str = FINDINGS,
    profile: str = "smoke",
    machine: str | None = None,
    seed: int = 0,
    seconds: float | None = None,
    runs: int | None = None,
    shrink_seconds: float = SHRINK_SECONDS,
) -> Outcome:
    """Fuzz an engine in this process; returns the `verdict`, the `findings`, and the figures in `summary()`.

    A finding has its `fingerprint`, its `story`, and the `path` of its op-log in the folder `out`.  The limit is that
    of the profile, or `seconds`, or `runs`; all findings are shrunk within `shrink_seconds` behind it.  Raises
    UsageError, with one line, if something that the options name is unknown.
    """
    machines = (None, *target_of(engine).machines)
    for name, value, choices in (("profile", profile, PROFILES), ("machine", machine, machines)):
        if value not in choices:
            raise UsageError(f"{name}: {value!r} is not one of {', '.join(filter(None, choices))}")
    limit = 60 * PROFILES[profile].minutes if runs is None else inf
    plan = Plan(
        engine=engine,
        profile=PROFILES[profile],
        seed=seed,
        seconds=limit if seconds is None else seconds,
        max_runs=runs,
        machine=machine,
        out=Path(out),
    )
    options = {
        "engine": engine,
        "profile": profile,
        "machine": machine,
        "minutes": f"{seconds / 60:g}" if seconds is not None else None,
        "runs": runs,
        "seed": seed,
        "shrink-seconds": f"{shrink_seconds:g}" if shrink_seconds != SHRINK_SECONDS else None,
    }
    given = [f"--{name} {value}" for name, value in options.items() if value is not None]
    outcome = Outcome(plan, f"swarden fuzz {' '.join(given)} --workers 1")
    for _ in driving(outcome, InProcess(), shrink_seconds=shrink_seconds, on_finding=lambda _: None):
        pass
    return outcome


def failure_text(outcome: Outcome) -> str:
    """The stories of the findings of a campaign and the command that runs it again; "" without findings."""
    result, texts = outcome.result, list[str]()
    if not result.tallies.runs and not result.target_faults:
        texts.append("no run was made, so nothing is tested: the time was over before the first; give more seconds")
    texts += [*result.target_faults.values(), *(f"not deterministic: {place}" for place in outcome.diverged)]
    texts += ["\n".join(map(str, finding.story)) for finding in outcome.findings]
    return "\n\n".join([*texts, f"to run it again: {outcome.command}"]) if texts else ""
