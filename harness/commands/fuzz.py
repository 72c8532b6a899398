"""swarden fuzz: random traffic against an engine, from a seed."""

import os
import secrets
from collections.abc import Collection
from pathlib import Path
from typing import Annotated, Any

import typer

from fakes.catalog import FAULTS
from harness.campaign import Plan, Result, why_not_green
from harness.commands.console import ERR, OUT, print_json, progress
from harness.commands.events import EventLines, EventsOption, event_lines
from harness.driver import STUCK
from harness.engines.models import MODELS
from harness.engines.registry import ENGINES, MACHINES, RUN_MODELS
from harness.errors import UsageError
from harness.exit_codes import ExitCode, worst
from harness.findings import Settled, settle
from harness.mutants.catalog import BY_ID
from harness.profiles import PROFILES, SHRINK_CPU_SECONDS
from harness.replay import planted
from harness.report import failure_text
from harness.shrink import Budget, DoesNotFail
from harness.workers import Progress, run_campaign

FINDINGS = Path(".swarden/findings")


def fuzz(
    *,
    machine: Annotated[str | None, typer.Option(help="engine, pd, ledger, tree or host; all by default")] = None,
    profile: Annotated[str, typer.Option(help="smoke, default or nightly")] = "default",
    minutes: Annotated[float | None, typer.Option(min=0.01, help="instead of the profile's")] = None,
    runs: Annotated[int | None, typer.Option(min=1, help="stop after so many runs, of all workers together")] = None,
    workers: Annotated[int | None, typer.Option(min=1, help="processes; one per core by default")] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="a campaign again; a fresh one by default")] = None,
    engine: Annotated[str, typer.Option(help="which engine to drive")] = "swarden",
    model: Annotated[str | None, typer.Option(help="what engines run, as tiny-gemma3; a stand-in by default")] = None,
    mutant: Annotated[str | None, typer.Option(help="plant a historical bug first")] = None,
    stop_on_first: Annotated[bool, typer.Option("--stop-on-first", help="end at the first violation")] = False,
    out: Annotated[Path, typer.Option(help="where findings are written")] = FINDINGS,
    events: EventsOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="one JSON object on standard output")] = False,
) -> None:
    """Drive an engine with random traffic; check every step; shrink and keep what fails."""
    _check("--machine", machine or "engine", MACHINES)
    _check("--profile", profile, PROFILES)
    _check("--engine", engine, ENGINES)
    _check_model(model, machine)
    with planted(mutant):
        pass
    if out.exists() and not os.access(out, os.W_OK):
        raise UsageError(f"--out: {out} cannot be written; name another folder")
    chosen = PROFILES[profile]
    seconds = (minutes if minutes is not None else chosen.minutes) * 60
    plan = Plan(
        chosen,
        seed if seed is not None else secrets.randbits(32),
        seconds if runs is None or minutes is not None else float("inf"),
        runs,
        machine,
        mutant,
        stop_on_first,
        out,
        model or (BY_ID[mutant].model if mutant is not None else ""),
    )
    workers = workers or os.cpu_count() or 1
    ERR.print(_opening(plan, workers))
    with event_lines(events) as lines:
        result = _run(plan, workers, lines)
        findings = _settle(result, out, lines)
    owed = _owed(result, plan, findings)
    if as_json:
        print_json({**summary(result, findings), "owed": owed, "diverged": result.diverged})
    else:
        _tell(result, findings, owed)
    raise typer.Exit(exit_code(result, findings, owed))


def _check(option: str, value: str, choices: Collection[str]) -> None:
    if value not in choices:
        raise UsageError(f"{option}: {value!r} is not one of {', '.join(choices)}")


def _opening(plan: Plan, workers: int) -> str:
    """How to run the same campaign again."""
    model = f" --model {plan.model}" if plan.model else ""
    again = f"swarden fuzz --profile {plan.profile.name} --seed {plan.seed} --workers {workers}{model}"
    return f"{again}: hypothesis generates only, no database, not derandomized"


def _check_model(model: str | None, machine: str | None) -> None:
    if model is not None:
        _check("--model", model, MODELS)
        if machine not in (None, *RUN_MODELS):
            raise UsageError(f"--model: machine {machine} runs no model; only {', '.join(RUN_MODELS)} does")


def summary(result: Result, findings: list[Settled]) -> dict[str, Any]:
    """What scripts read; shares are from 0 to 1."""
    tallies = result.tallies
    names = sorted({*tallies.evaluated, *tallies.not_applicable})
    return {
        "runs": tallies.runs,
        "steps": tallies.steps,
        "seconds": round(result.seconds, 3),
        "steps_per_second": round(tallies.steps / result.seconds, 1),
        "violations": tallies.failed_runs,
        "findings": list(map(_figures, findings)),
        "probes": dict(sorted(tallies.probes.items())),
        "checks": {
            name: {"evaluated": tallies.evaluated[name], "not_applicable": tallies.not_applicable[name]}
            for name in names
        },
        "noops": {name: round(tallies.noops[name] / count, 4) for name, count in sorted(tallies.ops.items())},
        "faults": {fault: tallies.fired[fault] for fault in FAULTS},
    }


def _figures(finding: Settled) -> dict[str, Any]:
    return {
        "fingerprint": finding.fingerprint,
        "invariant": finding.invariant,
        "ops": finding.ops,
        "engine_steps": finding.engine_steps,
        "found_cpu_seconds": round(finding.found_cpu_seconds, 3),
        "shrink_cpu_seconds": round(finding.shrink_cpu_seconds, 3),
        "path": str(finding.path),
    }


def exit_code(result: Result, findings: list[Settled], owed: list[str]) -> ExitCode:
    codes = [ExitCode.NONDETERMINISTIC] * bool(result.diverged) + [ExitCode.RED] * bool(owed)
    codes += [ExitCode.STUCK if finding.fingerprint == STUCK else ExitCode.VIOLATED for finding in findings]
    return worst(codes)


def _owed(result: Result, plan: Plan, findings: list[Settled]) -> list[str]:
    """Why a campaign is red without a violation; of one machine alone, green is not asked."""
    if plan.mutant is not None:
        caught_by = BY_ID[plan.mutant].caught_by
        found = any(finding.is_caught_by(caught_by) for finding in findings)
        return [] if found else [f"mutant {plan.mutant}: missed by {', '.join(caught_by)}"]
    if plan.machine is not None:
        ERR.print(f"only machine {plan.machine} ran: probes, evaluations and no-ops are not held against their floors")
        return []
    return why_not_green(result, plan.profile)


def _run(plan: Plan, workers: int, lines: EventLines) -> Result:
    latest: dict[int, Progress] = {}
    with progress() as bar:
        task = bar.add_task("starting")

        def tell(news: Progress) -> None:
            latest[news.worker] = news
            lines.write("progress", **news._asdict())
            runs, steps, failed = (sum(one[place] for one in latest.values()) for place in (1, 2, 3))
            bar.update(task, description=f"{runs} runs, {steps} engine steps, {failed} failed")

        return run_campaign(plan, workers, tell)


def _settle(result: Result, out: Path, lines: EventLines) -> list[Settled]:
    settled = []
    with progress() as bar:
        for finding in result.findings.values():
            bar.add_task(f"shrinking {finding.fingerprint}")
            try:
                settled.append(settle(finding, out, Budget(cpu_seconds=SHRINK_CPU_SECONDS)))
                lines.write("finding", **_figures(settled[-1]))
            except DoesNotFail as gone:
                result.diverged.append(str(gone))
    return settled


def _tell(result: Result, findings: list[Settled], owed: list[str]) -> None:
    for finding in findings:
        OUT.print(failure_text(finding.failure, finding.path), markup=False)
        OUT.print(
            f"found after {finding.found_cpu_seconds:.1f} s of CPU, shrunk to {finding.ops} ops and "
            f"{finding.engine_steps} engine steps in {finding.shrink_cpu_seconds:.1f} s\n",
            markup=False,
        )
    for place in result.diverged:
        OUT.print(f"not deterministic: {place}", markup=False)
    for line in owed:
        OUT.print(f"red: {line}", markup=False)
    tallies = result.tallies
    evaluated = sum(tallies.evaluated.values())
    OUT.print(
        f"{tallies.runs} runs, {tallies.steps} engine steps in {result.seconds:.0f} s "
        f"({tallies.steps / result.seconds:.0f} a second), {evaluated} checks, "
        f"{tallies.rechecked} runs run twice, {tallies.failed_runs} failed with {len(findings)} findings",
        markup=False,
    )
