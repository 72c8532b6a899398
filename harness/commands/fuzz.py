"""swarden fuzz: random traffic against an engine, from a seed."""

import os
import secrets
import shlex
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from itertools import chain
from math import inf
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import msgspec
import typer

from swarden.harness.commands import servers
from swarden.harness.commands.console import ERR, OUT, print_json, progress
from swarden.harness.commands.events import EventLines, EventsOption, event_lines
from swarden.harness.commands.exhaustive import explore
from swarden.harness.commands.help import finding_option, limit_option, output_option, traffic_option
from swarden.harness.commands.layout import print_lines
from swarden.harness.commands.mute import MutesOption
from swarden.harness.commands.progress import ProgressDisplay
from swarden.harness.commands.servers import LAUNCH, launched
from swarden.harness.core.changes import Changes, fixes_of
from swarden.harness.core.errors import UsageError
from swarden.harness.core.exit_codes import ExitCode, worst
from swarden.harness.core.files import why_not_writable
from swarden.harness.core.fingerprint import slug
from swarden.harness.core.mutant_file import VARIABLE, mutant_of
from swarden.harness.core.registry import OWN, target_of
from swarden.harness.core.target import ENGINE, Target
from swarden.harness.core.validation import NOT_DECODED
from swarden.harness.engines.server.options import ServerOptions
from swarden.harness.report.wording import counted
from swarden.harness.search.campaign import Plan
from swarden.harness.search.corpus import digest_of, files_of
from swarden.harness.search.driving import driving
from swarden.harness.search.findings import FINDINGS
from swarden.harness.search.fixed_settings import assignments
from swarden.harness.search.mutes import MUTES, mutes_of
from swarden.harness.search.outcome import Outcome, summary_of_engines, verdicts_of_engines
from swarden.harness.search.process import prepare_process
from swarden.harness.search.result import Finding
from swarden.harness.search.traffic.profiles import PROFILES, SHRINK_SECONDS
from swarden.harness.search.workers import WorkerGroup, interruptible

END = object()
STEP_TIMEOUT_S = 60.0
OWN_ENGINE = "without --engine, swarden's own engine is tested; to test another: --engine NAME (see 'swarden engines')"
ENGINES = typer.Option(help="an engine, as NAME or NAME==VERSION, or several; swarden's own by default", metavar="NAME")
STEP_TIMEOUT = limit_option(min=1, help="seconds without an engine step after which a worker is killed and replaced")
MINUTES = typer.Option(min=0.01, help="limit of the traffic; the profile's, or none with --runs")
SHRINK = limit_option(min=0, help="limit for shrinking all findings of an engine, behind the traffic")
EXHAUSTIVE = traffic_option(min=1, help="try all sequences of so many ops on a tiny engine, in place of random traffic")
SETTINGS = traffic_option(
    "--set",
    help="fix a setting in all runs, in JSON; of machine engine, unless --machine names another",
    metavar="NAME=VALUE",
)
WITH_FIX = traffic_option(
    "--with-fix", help="fix this known bug of the engine, or 'all', to find what is behind it", metavar="NAME"
)
CORPUS = finding_option(help="folder of op-logs to run first; healthy runs that reach rare states are added to it")


def fuzz(
    *,
    engine: Annotated[list[str] | None, ENGINES] = None,
    minutes: Annotated[float | None, MINUTES] = None,
    profile: Annotated[str, typer.Option(help="smoke, default or nightly")] = "default",
    workers: Annotated[int | None, typer.Option(min=1, help="worker processes of all engines; one per core")] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="seed of the campaign; a random one by default")] = None,
    machine: Annotated[str | None, traffic_option(help="only this machine, such as pd; all by default")] = None,
    model: Annotated[str | None, traffic_option(help="model, such as tiny-gemma3; a stand-in by default")] = None,
    settings: Annotated[list[str] | None, SETTINGS] = None,
    launch: Annotated[str | None, LAUNCH] = None,
    mutant: Annotated[str | None, traffic_option(help="plant the bug with this id, as in 'swarden mutants'")] = None,
    with_fix: Annotated[list[str] | None, WITH_FIX] = None,
    exhaustive: Annotated[int | None, EXHAUSTIVE] = None,
    runs: Annotated[int | None, limit_option(min=1, help="stop after this many runs of each engine")] = None,
    stop_on_first: Annotated[bool, limit_option("--stop-on-first", help="end at an engine's first finding")] = False,
    shrink_seconds: Annotated[float, SHRINK] = SHRINK_SECONDS,
    step_timeout: Annotated[float, STEP_TIMEOUT] = STEP_TIMEOUT_S,
    out: Annotated[Path, finding_option(help="folder for the findings", metavar="DIR")] = FINDINGS,
    corpus: Annotated[Path | None, CORPUS] = None,
    mutes: MutesOption = MUTES,
    events: EventsOption = None,
    as_json: Annotated[bool, output_option("--json", help="one JSON object on standard output")] = False,
    server: servers.OfRuns = servers.NONE,
) -> None:
    """Drive engines with random traffic; check every step; shrink and save the failures."""
    _check("--profile", profile, PROFILES)
    server = replace(server, settings=settings)
    if server.publish():
        if engine or (workers or 1) > 1:
            raise UsageError("--url: drives one server with one worker; leave out --engine and --workers")
        engine, workers, step_timeout = [servers.NAME], 1, max(step_timeout, servers.STEP_TIMEOUT_S)
    engine, line = launched(launch, engine or [], server.url)
    engines, machine = engine or [OWN], machine or line.machine or (ENGINE if settings else None)
    check_engines(engines, machine, model, Changes(mutant, tuple(with_fix or ())))
    seconds = 60 * (minutes or (inf if runs else PROFILES[profile].minutes))
    drawn_seed = secrets.randbits(32) if seed is None else seed
    given = {**line.settings, **settings_of(settings or [], engines)}
    fixed = server.learn(given, seconds + shrink_seconds, servers.note).settings
    shared = Plan(engine=engines[0], profile=PROFILES[profile], seed=drawn_seed, seconds=seconds, max_runs=runs)
    shared = replace(shared, machine=machine, model=model or "", mutant=mutant, settings=fixed)
    shared = replace(shared, workers=workers or os.cpu_count() or 1, stop_on_first=stop_on_first)
    shared = replace(shared, fixes=tuple(with_fix or ()), out=out, corpus=corpus, launch=line)
    if exhaustive is not None:
        also = {"--engine": engines[1:], "--seed": seed is not None, "--events": events}
        raise typer.Exit(explore(shared, exhaustive, also, shrink_seconds=shrink_seconds, as_json=as_json))
    asked = Asked(minutes, step_timeout, shrink_seconds, events, server, mutes)
    raise typer.Exit(_campaigns(shared, engines, asked, as_json=as_json))


class Asked(NamedTuple):
    """Options that are in no plan; `minutes` is None for the default."""

    minutes: float | None
    step_seconds: float
    shrink_seconds: float
    events: Path | None
    server: ServerOptions
    mutes: Path


def _campaigns(shared: Plan, engines: Sequence[str], asked: Asked, *, as_json: bool) -> ExitCode:
    """Run the campaigns of all engines, and print the outcome."""
    mutes, plans = mutes_of(asked.mutes), _with_folders(plans_for(engines, shared))
    command = _command(shared, engines, asked)
    shrinking = f"findings are shrunk behind it, in at most {asked.shrink_seconds:g} s (--shrink-seconds)"
    hint = [OWN_ENGINE] if list(engines) == [OWN] else []
    for line in (*hint, _opening(shared, plans), shrinking, *_corpora(plans)):
        ERR.print(line)
    ERR.print(f"to run it again: {command}", soft_wrap=True)
    outcomes = [Outcome(plan, _command(plan, [plan.engine], asked), mutes=mutes) for plan in plans]
    with (
        event_lines(asked.events) as lines,
        asked.server.resumed(shared.settings),
        ended_campaigns(outcomes, lines, step_seconds=asked.step_seconds, shrink_seconds=asked.shrink_seconds),
    ):
        if not as_json:
            _print_outcomes(outcomes)
        else:
            print_json(outcomes[0].summary() if len(outcomes) == 1 else summary_of_engines(outcomes, command))
    return worst(outcome.judgement.exit_code for outcome in outcomes)


def check_engines(engines: Sequence[str], machine: str | None, model: str | None, changes: Changes) -> None:
    """Raise UsageError unless all engines differ, and each can run here with all that is asked for."""
    names: dict[tuple[str, str], str] = {}
    for engine in engines:
        target = target_of(engine)
        same = (target.name, target.version())
        if same in names:
            raise UsageError(f"--engine: {names[same]} and {engine} are the same; name it once")
        names[same] = engine
        _check_machine(target, machine, model)
        fixes_of(target, changes.fixes)
        with Changes(changes.mutant).planted(target):
            pass


def settings_of(texts: Sequence[str], engines: Sequence[str]) -> dict[str, Any]:
    """The settings of "NAME=VALUE", with values in JSON; raises UsageError unless each engine has them."""
    settings: dict[str, Any] = {}
    for text in texts:
        name, is_set, value = text.partition("=")
        if not is_set:
            raise UsageError(f"--set: {text!r}; want NAME=VALUE with a value in JSON, such as overlap=true")
        if name in settings:
            raise UsageError(f"--set: {name} is given twice; give it once")
        for engine in engines:
            _check(f"--set for {engine}", name, target_of(engine).settable)
        try:
            settings[name] = msgspec.json.decode(value.encode())
        except NOT_DECODED as error:
            want = f"want a value in JSON, a text in quotes: '{name}=\"{value}\"'"
            raise UsageError(f"--set: {text!r}: {want}") from error
    return settings


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
        raise UsageError(f"--model: machine {machine} runs no model; these do: {', '.join(models) or 'none'}")
    _check("--model", model, list(dict.fromkeys(chain.from_iterable(models.values()))))


def _with_folders(plans: Sequence[Plan]) -> Sequence[Plan]:
    """The plans; raises UsageError unless a file can be written to their folders, of the findings and of the corpus."""
    for plan in plans:
        for option, folder in (("--out", plan.out), ("--corpus", plan.corpus)):
            if folder is not None and (why := why_not_writable(folder)):
                raise UsageError(f"{option}: {folder} cannot be written: {why}; name another folder")
    return plans


def _opening(shared: Plan, plans: Sequence[Plan]) -> str:
    """The first line of the output: the length and the subjects of the campaigns."""
    length = counted(shared.max_runs, "run") if shared.max_runs is not None else counted(shared.seconds / 60, "minute")
    length = f"at most {length}" if shared.stop_on_first else length
    if len(plans) == 1:
        subject, where = _subject(plans[0]), f"on {counted(plans[0].workers, 'worker')}"
    else:
        each = [f"{_subject(plan)} on {counted(plan.workers, 'worker')}" for plan in plans]
        subject, where = "each of " + "; ".join(each), "at the same time"
        cores = os.cpu_count() or 1
        if (workers := sum(plan.workers for plan in plans)) > cores:
            where += f" ({workers} workers share {counted(cores, 'core')})"
    return f"{length} of random traffic for {subject}, {where}; Ctrl-C ends it early and keeps findings"


def _corpora(plans: Sequence[Plan]) -> list[str]:
    """A line for each corpus, with its hash: a campaign is run again only with the same corpus."""
    folders = [plan.corpus for plan in plans if plan.corpus is not None]
    return [f"corpus {folder}: {counted(len(files_of(folder)), 'log')}, {digest_of(folder)}" for folder in folders]


def _subject(plan: Plan) -> str:
    subject = plan.engine + (f", machine {plan.machine}" if plan.machine is not None else "")
    subject += f" with model {plan.model}" if plan.model else ""
    fixed = plan.settings if plan.engine != servers.NAME else {"url": plan.settings["url"]}
    line = plan.launch.text
    subject += f", launched as {line!r}" if line else "".join(f", {setting}" for setting in assignments(fixed))
    subject += f" and the bug {plan.mutant}" if plan.mutant is not None else ""
    return subject + (f" with the fix of {', '.join(plan.fixes)}" if plan.fixes else "")


def _command(plan: Plan, engines: Sequence[str], asked: Asked) -> str:
    """The line that runs the same campaigns again."""
    model_of_bug = model_of_mutant(engines[0], plan.mutant)
    own = [f"{VARIABLE}={os.environ[VARIABLE]}"] if plan.mutant is not None and VARIABLE in os.environ else []
    options = {
        "--profile": plan.profile.name,
        "--machine": plan.machine if not asked.server.words else None,
        "--model": plan.model if plan.model not in ("", model_of_bug) else None,
        "--mutant": plan.mutant,
        "--minutes": asked.minutes,
        "--runs": plan.max_runs,
        "--workers": plan.workers if not asked.server.words else None,
        "--seed": plan.seed,
        "--step-timeout": asked.step_seconds if asked.step_seconds != STEP_TIMEOUT_S else None,
        "--shrink-seconds": asked.shrink_seconds if asked.shrink_seconds != SHRINK_SECONDS else None,
        "--out": plan.out if plan.out != FINDINGS else None,
        "--corpus": plan.corpus,
        "--mutes": asked.mutes if asked.mutes != MUTES else None,
    }
    words = [word for name, value in options.items() if value is not None for word in (name, str(value))]
    words += ["--launch", plan.launch.text] if plan.launch.text else []
    assigned = (asked.server.settings or []) if plan.launch.text else assignments(plan.settings)
    words += asked.server.words or [word for setting in assigned for word in ("--set", setting)]
    words += [word for fix in plan.fixes for word in ("--with-fix", fix)]
    is_named = list(engines) != [OWN] and not asked.server.words
    named = [word for engine in engines for word in ("--engine", engine)] if is_named else []
    words += ["--stop-on-first"] if plan.stop_on_first else []
    return shlex.join([*own, "swarden", "fuzz", *named, *words])


def _print_outcomes(outcomes: Sequence[Outcome]) -> None:
    for outcome in outcomes:
        _print_findings(outcome)
    for outcome in outcomes:
        engine = f"{outcome.plan.engine}: " if len(outcomes) > 1 else ""
        for line in outcome.lines():
            OUT.print(engine + line)
    if len(outcomes) > 1:
        OUT.print(verdicts_of_engines(outcomes))


def _print_findings(outcome: Outcome) -> None:
    for finding in outcome.findings:
        print_lines(OUT, finding.story)
        if finding.engine_steps is not None:
            OUT.print(
                f"found after {finding.found_cpu_seconds:.1f} s of CPU, shrunk to {counted(finding.ops, 'op')} and "
                f"{counted(finding.engine_steps, 'engine step')} in {finding.shrink_cpu_seconds:.1f} s"
            )
        OUT.print("")
        if finding.path is None:
            why = outcome.plan.out and why_not_writable(outcome.plan.out)
            OUT.print(f"{outcome.plan.out} cannot be written{f': {why}' if why else ''}; the op-log:")
            OUT.print(finding.log.to_bytes().decode(), soft_wrap=True)


def plans_for(engines: Sequence[str], shared: Plan) -> list[Plan]:
    """A plan for each engine. The workers are divided, at least one each; each engine has folders of its own."""
    assert shared.out is not None, "a campaign has a folder for its findings"
    each, more = divmod(shared.workers, len(engines))
    return [
        replace(
            shared,
            engine=engine,
            model=shared.model or model_of_mutant(engine, shared.mutant),
            fixes=fixes_of(target_of(engine), shared.fixes),
            workers=max(1, each + (index < more)),
            out=shared.out / slug(engine) if len(engines) > 1 else shared.out,
            corpus=shared.corpus / slug(engine) if shared.corpus and len(engines) > 1 else shared.corpus,
        )
        for index, engine in enumerate(engines)
    ]


def model_of_mutant(engine: str, mutant: str | None) -> str:
    """The model that a mutant needs; "" for the stand-in."""
    return mutant_of(target_of(engine), mutant).model if mutant is not None else ""


@contextmanager
def ended_campaigns(
    outcomes: Sequence[Outcome], lines: EventLines, *, step_seconds: float, shrink_seconds: float
) -> Iterator[None]:
    """Run all campaigns at the same time, to their outcomes; a worker is killed `step_seconds` after its last step.

    The first SIGINT or SIGTERM interrupts the campaigns that have not ended, not the body that prints the verdict.
    """

    def on_finding(finding: Finding) -> None:
        lines.write("finding", engine=finding.engine, **finding.figures())

    prepare_process()
    bar, groups = progress(), list[WorkerGroup]()
    for plan in [outcome.plan for outcome in outcomes]:
        on_progress = ProgressDisplay(plan, bar, lines).update
        groups.append(WorkerGroup(plan.workers, plan.out, hang_seconds=step_seconds, on_progress=on_progress))
    with interruptible(groups):
        try:
            with bar, ExitStack() as stack:
                for group in groups:
                    stack.enter_context(group)
                _take_turns(
                    driving(outcome, group, shrink_seconds=shrink_seconds, on_finding=on_finding)
                    for outcome, group in zip(outcomes, groups, strict=True)
                )
        except KeyboardInterrupt:
            folders = ", ".join(str(outcome.plan.out) for outcome in outcomes)
            ERR.print(f"swarden: interrupted; findings not shrunk yet are *.unshrunk.oplog in {folders}")
            raise
        yield


def _take_turns(iterators: Iterable[Iterator[None]]) -> None:
    """Exhaust all iterators, one element of each in turn."""
    waiting = list(iterators)
    while waiting:
        waiting = [iterator for iterator in waiting if next(iterator, END) is not END]
