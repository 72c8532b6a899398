"""swarden nightly: a campaign that runs every night, and remembers the nights before."""

import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from swarden.harness.commands import servers
from swarden.harness.commands.archive import ARCHIVE
from swarden.harness.commands.console import ERR, OUT, print_json, progress
from swarden.harness.commands.events import EventLines, EventsOption, event_lines
from swarden.harness.commands.fuzz import ENGINES, STEP_TIMEOUT, STEP_TIMEOUT_S, WITH_FIX, check_engines, settings_of
from swarden.harness.commands.help import limit_option, output_option, traffic_option, worker_option
from swarden.harness.commands.progress import NightDisplay
from swarden.harness.commands.servers import LAUNCH, launched
from swarden.harness.core.changes import Changes
from swarden.harness.core.errors import UsageError
from swarden.harness.core.exit_codes import ExitCode, worst
from swarden.harness.core.files import check_target, opened, read_whole, write_whole
from swarden.harness.core.limits import MAX_ARCHIVE_BYTES
from swarden.harness.core.process import ProcessLimits
from swarden.harness.core.registry import OWN, target_of
from swarden.harness.engines.server.options import ServerOptions
from swarden.harness.nightly.archive import Archive, Night
from swarden.harness.nightly.canary import canary
from swarden.harness.nightly.events import Event
from swarden.harness.nightly.journal import Journal
from swarden.harness.nightly.night import Coordinator, NightPhase, Order, begin, resumed
from swarden.harness.nightly.pool import local_pool, pool_of_scheduler
from swarden.harness.nightly.replaying import replay
from swarden.harness.nightly.reports import report
from swarden.harness.nightly.settling import settle_findings
from swarden.harness.nightly.shards import EngineBuild
from swarden.harness.nightly.traffic import traffic
from swarden.harness.nightly.verdict import judgement_of
from swarden.harness.search.archive_files import ArchiveError
from swarden.harness.search.traffic.profiles import PROFILES

SETTINGS = traffic_option(
    "--set", help="fix a setting in all runs, in JSON; only with --url or --launch", metavar="NAME=VALUE"
)
MEMORY_GIB = 8.0
PHASES = (
    NightPhase("replay", replay, "the op-logs of the archive"),
    NightPhase("canary", canary, "a planted bug of each engine is searched for, for at most a quarter of --minutes"),
    NightPhase("traffic", traffic, "random traffic"),
    NightPhase("settle", settle_findings, "new failures are shrunk, and run again in fresh processes"),
    NightPhase("report", report, "the verdict"),
)


def nightly(
    *,
    engine: Annotated[list[str] | None, ENGINES] = None,
    minutes: Annotated[float | None, typer.Option(min=0.01, help="limit of the random traffic; the profile's")] = None,
    profile: Annotated[str, typer.Option(help="smoke, default or nightly")] = "nightly",
    archive: Annotated[Path, typer.Option(help="folder that remembers the nights")] = ARCHIVE,
    resume: Annotated[Path | None, typer.Option(help="continue the night in this folder, ARCHIVE/nights/NAME")] = None,
    gate: Annotated[bool, typer.Option("--gate", help="for a pull request: findings open before are not red")] = False,
    seed: Annotated[int | None, traffic_option(min=0, help="seed of the traffic; a new one by default")] = None,
    mutant: Annotated[str | None, traffic_option(help="plant the bug with this id, to try the setup")] = None,
    settings: Annotated[list[str] | None, SETTINGS] = None,
    launch: Annotated[str | None, LAUNCH] = None,
    with_fix: Annotated[list[str] | None, WITH_FIX] = None,
    runs: Annotated[int | None, limit_option(min=1, help="stop the traffic after so many runs of each engine")] = None,
    step_timeout: Annotated[float, STEP_TIMEOUT] = STEP_TIMEOUT_S,
    memory_gib: Annotated[float, limit_option("--memory", min=0, help="GiB of each worker; 0: no limit")] = MEMORY_GIB,
    workers: Annotated[int | None, worker_option(min=1, help="shards that run at a time; one per core or node")] = None,
    scheduler: Annotated[str | None, worker_option(help="address of a Dask scheduler, such as tcp://host:8786")] = None,
    junit: Annotated[Path | None, output_option(help="write the results as JUnit to this file too")] = None,
    events: EventsOption = None,
    as_json: Annotated[bool, output_option("--json", help="one JSON object on standard output: night.json")] = False,
    server: servers.OfRuns = servers.NONE,
) -> None:
    """Replay the archive, find a canary, fuzz with fresh seeds, confirm the findings, and report.

    Prints one line for each phase.
    """
    server = replace(server, settings=settings)
    if server.publish():
        if engine or (workers or 1) > 1 or scheduler:
            raise UsageError("--url: drives one server with one worker; leave out --engine, --workers and --scheduler")
        engine, workers, step_timeout = [servers.NAME], 1, max(step_timeout, servers.STEP_TIMEOUT_S)
    check_target("--junit", junit)
    engine, given = launched(launch if resume is None else None, engine or [], server.url)
    order = Order(engine or [OWN], "", minutes, runs, profile, seed, mutant, gate, with_fix or (), line=given)
    place, night = _begun(Archive(archive), order, server) if resume is None else _resumed(resume, server.url)
    limits = ProcessLimits(step_timeout, int(memory_gib * 2**30))
    shown = _with_command_to_continue(place.nights_folder / night.name, night, server.words)
    with shown, server.resumed(night.settings):
        builds = [EngineBuild(entry.engine, entry.version, entry.source_hash) for entry in night.engines]
        opening = pool_of_scheduler(scheduler, workers, builds) if scheduler else local_pool(workers)
        with opening as pool, _emitter(place.nights_folder / night.name, events) as emit, progress() as bar:
            display = NightDisplay(bar)
            for line in Coordinator(place, night, pool, limits, emit, display.begin, display.update).run(PHASES):
                bar.stop()  # until the next phase begins: a live bar would move the line to standard error
                (ERR if as_json else OUT).print(line)
        _end(place, night, junit, as_json=as_json)
    raise typer.Exit(night.exit_code or ExitCode.CLEAN)


def _begun(place: Archive, order: Order, server: ServerOptions) -> tuple[Archive, Night]:
    """A new night; if it has a server, the server reports its settings first."""
    if order.profile not in PROFILES:
        raise UsageError(f"--profile: {order.profile!r} is not one of {', '.join(PROFILES)}")
    if server.settings and server.url is None and not order.line.text:
        raise UsageError("--set: is for a server, or beside --launch; give one of --url and --launch too")
    check_engines(order.engines, None, None, Changes(order.mutant, tuple(order.fixes)))
    words = ["swarden", *sys.argv[1:]]
    if server.words:  # as they are given, they may have secrets
        words = ["swarden", "nightly", "--archive", str(place.root), *server.words, *_words_of(order)]
    is_limited = (order.minutes, order.runs) != (None, None)
    minutes = order.minutes if is_limited else PROFILES[order.profile].minutes
    fixed, seconds = settings_of(server.settings or [], order.engines), inf if minutes is None else 60 * minutes
    settings, about = server.learn({**order.line.settings, **fixed}, seconds, servers.note)
    if order.line.text and not about:
        about = ", ".join(["not driven:", *order.line.not_driven])
    order = order._replace(command=shlex.join(words), minutes=minutes, settings=settings, about=about)
    night = begin(place, order)
    for line in night.not_ended:
        ERR.print(line, soft_wrap=True)
    return place, night


def _words_of(order: Order) -> list[str]:
    """The options of a night, without the options of its server."""
    options = {"--minutes": order.minutes, "--runs": order.runs, "--profile": order.profile}
    options |= {"--seed": order.seed, "--mutant": order.mutant}
    words = [word for name, value in options.items() if value is not None for word in (name, f"{value}")]
    words += [word for name in order.fixes for word in ("--with-fix", name)]
    return [*words, "--gate"] if order.is_gate else words


def _resumed(folder: Path, url: str | None) -> tuple[Archive, Night]:
    place, night = resumed(folder)
    if url is not None and [engine.engine for engine in night.engines] != [servers.NAME]:
        raise UsageError(
            f"--url: {folder} is a night of {night.engines[0].engine}, which is no server; leave out --url"
        )
    for entry in night.engines:
        target_of(entry.engine).check_environment()
    return place, night


def _end(place: Archive, night: Night, junit: Path | None, *, as_json: bool) -> None:
    """Remove the shards, whose records are in the night, and write the files that the user has asked for."""
    folder = place.nights_folder / night.name
    Journal(folder / "shards").clear()
    if junit is not None:
        _copy(folder / "junit.xml", junit, place.root)
    if as_json:
        print_json(msgspec.to_builtins(night))


def _copy(source: Path, target: Path, root: Path) -> None:
    """Copy a file of the archive in `root` to a target that the user names."""
    target.parent.mkdir(parents=True, exist_ok=True)
    write_whole(target, read_whole(source, most=MAX_ARCHIVE_BYTES, inside=root))


@contextmanager
def _with_command_to_continue(folder: Path, night: Night, options: Sequence[str]) -> Iterator[None]:
    """Print the command that continues the night if it does not end; after an interrupt a finding is the verdict."""
    try:
        yield
    except KeyboardInterrupt:
        ERR.print("swarden: interrupted")
        raise typer.Exit(worst([ExitCode.INTERRUPTED, judgement_of(night).exit_code])) from None
    finally:
        if night.exit_code is None:
            command = shlex.join(["swarden", "nightly", "--resume", str(folder), *options])
            ERR.print(f"the night has not ended; to continue: {command}", soft_wrap=True)


@contextmanager
def _emitter(folder: Path, path: Path | None) -> Iterator[Callable[[Event], None]]:
    """A function that writes each event to the night's events.jsonl, after earlier ones, and to the user's file."""
    try:
        own = opened(folder / "events.jsonl", "ab", inside=folder.parents[1])
    except OSError as error:
        raise ArchiveError(f"{error.filename}: cannot be written: {error.strerror}; move it away") from error
    with own, event_lines(path) as lines:
        outputs = (EventLines(own), lines)

        def emit(event: Event) -> None:
            fields = msgspec.to_builtins(event)
            for output in outputs:
                output.write(fields["event"], **{name: value for name, value in fields.items() if name != "event"})

        yield emit
