"""swarden archive: the findings of the nights."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from swarden.harness.commands import servers
from swarden.harness.commands.console import ERR, OUT, print_json, print_piece
from swarden.harness.commands.fuzz import STEP_TIMEOUT_S
from swarden.harness.commands.mute import date_of
from swarden.harness.core.admission import load_log
from swarden.harness.core.errors import UsageError
from swarden.harness.core.exit_codes import ExitCode
from swarden.harness.core.files import write_whole
from swarden.harness.core.oplog import OpLog, OpLogError
from swarden.harness.core.process import ProcessLimits
from swarden.harness.core.registry import target_for
from swarden.harness.core.replay import is_death
from swarden.harness.nightly.archive import IMPORT, Archive, Archived, Sighting, figures_of
from swarden.harness.nightly.shards import replay_with_story
from swarden.harness.releases.draft import draft_of, missing_in
from swarden.harness.report.wording import counted
from swarden.harness.search.mutes import Mute, today
from swarden.harness.search.programs import SUFFIX

ARCHIVE = Path(".swarden/archive")
ArchiveOption = Annotated[Path, typer.Option("--archive", help="folder of the archive")]
JsonOption = Annotated[bool, typer.Option("--json", help="one JSON object on standard output")]
FingerprintArgument = Annotated[str, typer.Argument(help="a fingerprint or the name of a folder, or its beginning")]

archive = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    no_args_is_help=True,
    help="The findings of the nights: list, show, quarantine, verify, import or draft them.",
)


@archive.command("list")
def list_findings(place: ArchiveOption = ARCHIVE, as_json: JsonOption = False) -> None:
    """List the findings: status, number of nights, the first and the last one, engine and fingerprint."""
    errors: list[str] = []
    findings = [(finding, finding.summary()) for finding in Archive(place).findings(errors)]
    errors += [error for finding, _ in findings for error in finding.errors]
    if as_json:
        summaries = [{"folder": finding.name} | msgspec.to_builtins(summary) for finding, summary in findings]
        print_json({"findings": summaries, "errors": errors})
    else:
        for _, summary in findings:
            seen = f"{counted(summary.seen, 'night')}, {summary.first_seen[:10]} to {summary.last_seen[:10]}"
            put = summary.quarantine
            quarantine = f" (quarantined until {put.until})" if put and put.is_active(today()) else ""
            line = f"{summary.status.value}{quarantine}: {summary.engine} {summary.fingerprint}: {seen}"
            OUT.print(line)
        _print_errors(errors)
    raise typer.Exit(ExitCode.MISUSE if errors else ExitCode.CLEAN)


@archive.command()
def show(fingerprint: FingerprintArgument, place: ArchiveOption = ARCHIVE, as_json: JsonOption = False) -> None:
    """Show one finding: its summary, its story, and its result in each night."""
    finding = _the_one(Archive(place), fingerprint)
    summary = finding.summary()
    if as_json:
        sightings = msgspec.to_builtins(finding.sightings)
        print_json({"folder": finding.name} | msgspec.to_builtins(summary) | {"sightings": sightings})
        return
    OUT.print(f"{summary.status.value}: {summary.engine} {summary.fingerprint}")
    OUT.print(f"folder: {finding.folder}")
    if (put := summary.quarantine) is not None:
        words = "quarantined until" if put.is_active(today()) else "quarantine ended on"
        OUT.print(f"{words} {put.until}: {put.reason}")
    for sighting in finding.sightings:
        release = sighting.engine if "==" in sighting.engine else f"{sighting.engine} {sighting.version}"
        replays = f", failed {sighting.failures} of {counted(sighting.runs, 'run')}" if sighting.runs else ""
        traffic = f", {counted(sighting.times, 'time')} in random traffic" if sighting.times else ""
        why = f", {sighting.why}" if sighting.why else ""
        OUT.print(f"{sighting.night}: {sighting.status.value} on {release}{replays}{traffic}{why}")
    print_piece(finding.story)
    _print_errors(finding.errors)


@archive.command()
def quarantine(
    fingerprint: FingerprintArgument,
    *,
    reason: Annotated[str, typer.Option(help="the reason, such as the issue of the engine")],
    until: Annotated[str, typer.Option(help="date, as in 2026-12-31; from then on the finding counts again")],
    place: ArchiveOption = ARCHIVE,
) -> None:
    """Keep a finding from making a night red before a date; its log is replayed all the same."""
    end = date_of(until)
    finding = _the_one(Archive(place), fingerprint)
    finding.put_in_quarantine(Mute(reason=reason, until=end))
    OUT.print(f"{finding.engine} {finding.fingerprint}: quarantined until {end}")


@archive.command()
def verify(place: ArchiveOption = ARCHIVE, as_json: JsonOption = False) -> None:
    """Read every file of the archive; ERROR for each that cannot be read. Nothing is changed or removed."""
    errors: list[str] = []
    findings = Archive(place).findings(errors)
    for finding in findings:
        errors += [*_errors_of(finding)]
    nights = Archive(place).nights(errors)
    for path in sorted(place.glob("corpus/*/*.oplog")):
        errors += [*_log_errors(path, place)]
    if as_json:
        print_json({"findings": len(findings), "nights": len(nights), "errors": errors})
    else:
        _print_errors(errors)
        counts = [counted(len(findings), "finding"), counted(len(nights), "night"), counted(len(errors), "error")]
        OUT.print(", ".join(counts))
    raise typer.Exit(ExitCode.MISUSE if errors else ExitCode.CLEAN)


@archive.command("import")
def import_logs(
    paths: Annotated[list[Path], typer.Argument(help="op-logs, as in .swarden/findings")],
    place: ArchiveOption = ARCHIVE,
    *,
    server: servers.OfLogs = servers.NONE,
) -> None:
    """Add op-logs: each is run three times in a process of its own, and must fail or name the failure it expects."""
    server.publish()
    night = _name_of_import(Archive(place))
    for path in paths:
        log = load_log(path)
        header = log.header
        replays = replay_with_story(log, ProcessLimits(STEP_TIMEOUT_S))
        name = header.expected or next(iter(replays.fingerprints), None)
        if name is None:
            raise UsageError(f"{path}: does not fail, and its header names no expected failure; name it there")
        finding = Archive(place).finding(header.engine, name)
        kills = any(map(is_death, (name, *replays.fingerprints)))
        expecting = OpLog(msgspec.structs.replace(header, expected=name), log.ops, log.digests)
        sighting = Sighting(
            night=night,
            engine=header.engine,
            version=target_for(header).version(),
            source_hash=target_for(header).source_hash(),
            status=finding.status_of(replays.verdict, night, header.engine),
            log=finding.keep(expecting, replays.story, with_test=not kills),
            **figures_of(replays),
        )
        finding.add(sighting)
        OUT.print(f"{sighting.status.value}: {name}: {finding.folder}")


@archive.command()
def draft(
    finding: Annotated[str, typer.Argument(help="an op-log, or a fingerprint or folder of the archive")],
    place: ArchiveOption = ARCHIVE,
    *,
    engine: Annotated[str | None, typer.Option(help="the engine; by default that of the op-log")] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="NAME.toml, a new file; NAME.oplog is written beside it")
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="say what is missing in NAME.toml, in place of an op-log")
    ] = False,
) -> None:
    """Write the file of a known bug with all that is measured; a sentence that a person has to write is a TODO.

    The op-log is replayed on each installed release. With --check the exit code is 5 if something is missing.
    """
    if check:
        missing = missing_in(Path(finding))
        for line in missing or [f"{finding}: nothing is missing"]:
            OUT.print(line, soft_wrap=True)
        raise typer.Exit(ExitCode.RED if missing else ExitCode.CLEAN)
    path = Path(finding) if finding.endswith(SUFFIX) else _the_one(Archive(place), finding).log
    if path is None:
        raise UsageError(f"{finding}: no sighting names an op-log; name an op-log")
    for new in (out, out.with_suffix(SUFFIX)) if out is not None else ():
        if new.exists():
            raise UsageError(f"--out: {new} exists; name a new file")
    text = draft_of(path, engine, ERR.print)
    if out is None:
        OUT.print(text, end="", soft_wrap=True)
        return
    write_whole(out, text.encode())
    load_log(path).save(out.with_suffix(SUFFIX))
    OUT.print(f"written: {out}; fill in each TODO, then run: swarden archive draft {out} --check")


def _name_of_import(place: Archive) -> str:
    """A name that sorts after the nights of this day so far, and before the next night."""
    day = today()
    return max((night.name for night in place.nights_folder.glob(f"{day}-*")), default=f"{day}-00") + IMPORT


def _the_one(place: Archive, prefix: str) -> Archived:
    """The finding whose fingerprint or folder is `prefix`, or begins with it."""
    findings = place.findings([])
    exact = [finding for finding in findings if prefix in (finding.fingerprint, finding.name)]
    begun = [finding for finding in findings if f"\n{prefix}" in f"\n{finding.fingerprint}\n{finding.name}"]
    matching = exact or begun
    if len(matching) == 1:
        return matching[0]
    if not matching:
        raise UsageError(f"{prefix}: {place.root} has no such finding; see 'swarden archive list'")
    names = ", ".join(finding.name for finding in matching)
    raise UsageError(f"{prefix}: {len(matching)} findings begin so; name the folder of one: {names}")


def _errors_of(finding: Archived) -> Iterator[str]:
    _ = finding.summary(), finding.story  # read now, for their errors
    yield from finding.errors
    if finding.log is None:
        yield f"{finding.folder}: no sighting names an op-log; restore seen/, or move the folder away"
    for path in sorted({*finding.folder.glob("*.oplog"), *([finding.log] if finding.log else [])}):
        yield from _log_errors(path, finding.root)


def _log_errors(path: Path, root: Path) -> Iterator[str]:
    try:
        load_log(path, inside=root)
    except OpLogError as error:
        yield str(error)


def _print_errors(errors: list[str]) -> None:
    for error in errors:
        OUT.print(f"ERROR {error}")
