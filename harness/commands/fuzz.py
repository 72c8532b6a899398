"""swarden fuzz: random traffic against an engine, from a seed."""

import os
import secrets
import shlex
from collections.abc import Collection
from itertools import chain
from pathlib import Path
from typing import Annotated

import typer

from harness.commands.console import ERR, OUT, print_json, progress
from harness.commands.events import EventLines, EventsOption, event_lines
from harness.commands.layout import print_lines
from harness.commands.options import EngineOption
from harness.commands.progress import ProgressDisplay
from harness.core.errors import UsageError
from harness.core.mutant import Mutant
from harness.core.mutant_file import VARIABLE, mutant_of
from harness.core.registry import OWN, target_of
from harness.core.replay import planted
from harness.core.target import Target
from harness.search.campaign import Plan
from harness.search.findings import FindingReport
from harness.search.outcome import Outcome
from harness.search.process import prepare_process
from harness.search.profiles import PROFILES, SHRINK_CPU_SECONDS
from harness.search.shrink import Budget
from harness.search.workers import WorkerGroup

FINDINGS = Path(".swarden/findings")
STEP_TIMEOUT_S = 60.0


def fuzz(
    *,
    machine: Annotated[str | None, typer.Option(help="only this machine, such as pd; all by default")] = None,
    profile: Annotated[str, typer.Option(help="smoke, default or nightly")] = "default",
    minutes: Annotated[float | None, typer.Option(min=0.01, help="limit; the profile's, or none with --runs")] = None,
    runs: Annotated[int | None, typer.Option(min=1, help="stop after this many runs of all workers together")] = None,
    workers: Annotated[int | None, typer.Option(min=1, help="worker processes; one per core by default")] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="seed of the campaign; a random one by default")] = None,
    engine: EngineOption = OWN,
    model: Annotated[str | None, typer.Option(help="model to run, such as tiny-gemma3; a stand-in by default")] = None,
    mutant: Annotated[str | None, typer.Option(help="plant the bug with this id, as in 'swarden mutants'")] = None,
    stop_on_first: Annotated[bool, typer.Option("--stop-on-first", help="end at the first finding")] = False,
    step_timeout: Annotated[
        float, typer.Option(min=1, help="seconds without an engine step after which a worker is killed and replaced")
    ] = STEP_TIMEOUT_S,
    out: Annotated[Path, typer.Option(help="folder for the findings")] = FINDINGS,
    events: EventsOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="one JSON object on standard output")] = False,
) -> None:
    """Drive an engine with random traffic; check every step; shrink and save the failures."""
    _check("--profile", profile, PROFILES)
    target = target_of(engine)
    _check_machine(target, machine, model)
    with planted(target, mutant):
        pass
    _check_out(out)
    chosen = PROFILES[profile]
    plan = Plan(
        engine,
        chosen,
        seed if seed is not None else secrets.randbits(32),
        60 * (minutes if minutes is not None else chosen.minutes if runs is None else float("inf")),
        runs,
        machine,
        mutant,
        stop_on_first,
        out,
        model or (mutant_of(target, mutant).model if mutant is not None else ""),
        workers or os.cpu_count() or 1,
    )
    command = _command(plan, minutes, step_timeout)
    ERR.print(_opening(plan), markup=False)
    ERR.print(f"to run it again: {command}", markup=False)
    with event_lines(events) as lines:
        outcome = _campaign(plan, command, step_timeout, lines)
    if as_json:
        print_json(outcome.summary())
    else:
        _print_outcome(outcome)
    raise typer.Exit(outcome.exit_code)


def _check(option: str, value: str, choices: Collection[str]) -> None:
    if value not in choices:
        raise UsageError(f"{option}: {value!r} is not one of {', '.join(choices)}")


def _check_machine(target: Target, machine: str | None, model: str | None) -> None:
    """Raise UsageError unless the engine can run here, with this machine and this model."""
    target.check_environment()
    if machine is not None:
        _check("--machine", machine, target.machines)
    if model is None:
        return
    models = {name: spec.models for name, spec in target.machines.items() if spec.models}
    if machine is not None and machine not in models:
        raise UsageError(f"--model: machine {machine} runs no model; only {', '.join(models) or 'none'} does")
    _check("--model", model, list(dict.fromkeys(chain.from_iterable(models.values()))))


def _check_out(out: Path) -> None:
    """Raise UsageError unless a file can be written to the folder of the findings."""
    trial = out / f".trial-{os.getpid()}"
    try:
        out.mkdir(parents=True, exist_ok=True)
        trial.write_bytes(b"findings go here\n")
        trial.unlink()
    except OSError as error:
        raise UsageError(f"--out: {out} cannot be written: {error.strerror}; name another folder") from error


def _opening(plan: Plan) -> str:
    """The first line of the output: the length and the subject of the campaign."""
    length = _count(plan.max_runs, "run") if plan.max_runs is not None else _count(plan.seconds / 60, "minute")
    subject = plan.engine + (f", machine {plan.machine}" if plan.machine is not None else "")
    subject += f" with model {plan.model}" if plan.model else ""
    bug = f" and the bug {plan.mutant}" if plan.mutant is not None else ""
    where = f"on {_count(plan.workers, 'worker')}; Ctrl-C ends it early and keeps findings"
    return f"{length} of random traffic for {subject}{bug}, {where}"


def _count(number: float, noun: str) -> str:
    return f"{number:g} {noun}" + "s" * (number != 1)


def _mutant(plan: Plan) -> Mutant | None:
    return mutant_of(target_of(plan.engine), plan.mutant) if plan.mutant is not None else None


def _command(plan: Plan, minutes: float | None, step_timeout: float) -> str:
    """The line that runs the same campaign again."""
    mutant = _mutant(plan)
    model_of_mutant = mutant.model if mutant is not None else ""
    own = [f"{VARIABLE}={os.environ[VARIABLE]}"] if plan.mutant is not None and VARIABLE in os.environ else []
    options = {
        "--engine": plan.engine if plan.engine != OWN else None,
        "--profile": plan.profile.name,
        "--machine": plan.machine,
        "--model": plan.model if plan.model != model_of_mutant else None,
        "--mutant": plan.mutant,
        "--minutes": minutes,
        "--runs": plan.max_runs,
        "--workers": plan.workers,
        "--seed": plan.seed,
        "--step-timeout": step_timeout if step_timeout != STEP_TIMEOUT_S else None,
        "--out": plan.out if plan.out != FINDINGS else None,
    }
    words = [word for name, value in options.items() if value is not None for word in (name, str(value))]
    return shlex.join([*own, "swarden", "fuzz", *words, *["--stop-on-first"] * plan.stop_on_first])


def _campaign(plan: Plan, command: str, step_timeout: float, lines: EventLines) -> Outcome:
    """Make all runs, then shrink and report every finding with the same workers."""
    assert plan.out is not None, "a campaign has a folder for its findings"
    prepare_process()
    findings: list[FindingReport] = []
    not_reproduced: list[str] = []
    try:
        with progress() as bar:
            on_progress = ProgressDisplay(plan, bar, lines).update
            group = WorkerGroup(plan.workers, plan.out, hang_seconds=step_timeout, on_progress=on_progress)
            with group, group.interruptible():
                result = group.run(plan)
                for report in group.report_findings(plan.out, Budget(cpu_seconds=SHRINK_CPU_SECONDS)):
                    if isinstance(report, FindingReport):
                        findings.append(report)
                        lines.write("finding", **report.figures())
                    else:
                        not_reproduced.append(report.reason)
                is_interrupted = group.is_interrupted
    except KeyboardInterrupt:
        ERR.print(f"swarden: interrupted; findings not shrunk yet are *.unshrunk.oplog in {plan.out}", markup=False)
        raise
    return Outcome(plan, command, result, findings, not_reproduced, _mutant(plan), is_interrupted)


def _print_outcome(outcome: Outcome) -> None:
    for finding in outcome.findings:
        print_lines(OUT, finding.story)
        if finding.engine_steps is not None:
            OUT.print(
                f"found after {finding.found_cpu_seconds:.1f} s of CPU, shrunk to {finding.ops} ops and "
                f"{finding.engine_steps} engine steps in {finding.shrink_cpu_seconds:.1f} s",
                markup=False,
            )
        OUT.print("")
        if finding.path is None:
            OUT.print(f"{outcome.plan.out} cannot be written; the op-log:", markup=False)
            OUT.print(finding.log.to_bytes().decode(), markup=False)
    for line in outcome.lines():
        OUT.print(line, markup=False)
