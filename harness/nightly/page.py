"""The page of an archive, or of the findings of one campaign: what ran, what failed, and what was reached."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from swarden.harness.core.admission import load_log
from swarden.harness.core.errors import UsageError
from swarden.harness.core.exit_codes import ExitCode
from swarden.harness.core.files import read_whole
from swarden.harness.core.fingerprint import slug
from swarden.harness.core.limits import MAX_STORY_BYTES
from swarden.harness.core.oplog import OpLogError
from swarden.harness.core.registry import UnknownEngine, installed, target_of
from swarden.harness.nightly.archive import (
    FAILING,
    IMPORT,
    URGENCY,
    Archive,
    Archived,
    EngineOfNight,
    FindingSummary,
    Night,
    Sighting,
    Status,
    date_of,
)
from swarden.harness.nightly.reports import about_server, known_of
from swarden.harness.nightly.verdict import judgement_of, next_step, red_reasons, unjudged
from swarden.harness.report.page import page_of_report
from swarden.harness.search.judgement import NOT_JUDGED, ONLY_KNOWN

MAX_NIGHTS = 30  # of the history, the last
MAX_FINDINGS = 100
MAX_RUNS = 40  # findings with their run on the page; further ones have the story alone
NOT_ENDED = "not ended"
MATRIX = "kill-matrix.md"


class RunPart(NamedTuple):
    """The HTML of the run of an op-log, or the reason for which there is none."""

    html: str = ""
    why_not: str = ""


class FindingView(NamedTuple):
    """A finding; `status` is "" outside of an archive, `quarantine` if it has ended, and `story` is the stored one."""

    summary: FindingSummary
    log: Path | None
    num_ops: int | None
    status: str = ""
    quarantine: str = ""
    story: str = ""
    part: RunPart = RunPart()
    by_night: Mapping[str, str] = {}


class NightView(NamedTuple):
    """A night and its verdict, with the reasons for which it is red or not judged, and what to do."""

    record: Night
    verdict: str
    code: int
    reasons: Sequence[str]
    server: Sequence[str]
    next_step: str

    @property
    def tone(self) -> str:
        """Good, bad, or warn for a night that was red, not judged or failed by known bugs only, or has not ended."""
        if self.code == ExitCode.RED or self.verdict in (NOT_JUDGED, NOT_ENDED, ONLY_KNOWN):
            return "warn"
        return "bad" if self.code else "good"

    @property
    def statuses(self) -> dict[str, int]:
        """The number of findings by status."""
        statuses = [finding.sighting.status for finding in self.record.findings]
        return {status.value: statuses.count(status) for status in URGENCY if status in statuses}


class Probe(NamedTuple):
    """A probe of an engine: the number of runs that reached it, and the number that must reach it."""

    name: str
    meaning: str
    reached: int
    wanted: int


class FileLines(NamedTuple):
    """A file of an engine's package: its executable lines, the lines that ran, and the other lines as ranges."""

    path: str
    lines: int
    covered: int
    missing: str


class MeasuredCode(NamedTuple):
    """The files of an engine of which code ran, and the number only imported; `logs` op-logs of the `corpus` ran."""

    files: Sequence[FileLines]
    imported: int
    logs: int
    corpus: int


Parts = Callable[[Sequence[Path]], Mapping[Path, RunPart]]
Coverage = Callable[[str, Sequence[Path]], MeasuredCode | str | None]


def page_of(root: Path, parts_of: Parts, coverage_of: Coverage) -> str:
    """The page of a folder; `parts_of` runs op-logs, `coverage_of` a corpus.  Raises UsageError for an empty folder."""
    errors: list[str] = []
    archive = Archive(root)
    nights = archive.nights(errors)
    archived = archive.findings(errors)
    is_archive = any(next(root.glob(pattern), None) for pattern in ("nights/*/night.json", "findings/*/finding.json"))
    logs = [] if is_archive else _logs_of_campaign(root)
    if not is_archive and not logs:
        raise UsageError(
            f"{root}: has no nights and no op-logs; want an archive, or the folder of a campaign's findings"
        )
    date = date_of(nights[-1].name) if nights else f"{datetime.now(UTC):%Y-%m-%d}"
    of_archive = sorted(  # the most urgent first; findings in quarantine come last
        (_of_archive(archived_finding, date) for archived_finding in archived),
        key=lambda view: (bool(view.quarantine), URGENCY.index(Status(view.status)), view.summary.fingerprint),
    )
    findings = of_archive or [*map(_of_log, logs)]
    for archived_finding in archived:
        errors += archived_finding.errors
    with_run = [finding.log for finding in findings[:MAX_RUNS] if finding.log is not None]
    parts = parts_of(with_run)
    shown = [finding._replace(part=parts.get(finding.log or root, finding.part)) for finding in findings[:MAX_FINDINGS]]
    views = [_view_of(night) for night in nights]
    ended = [view for view in views if view.record.exit_code is not None]
    last = next(reversed(ended or views), None)
    engines = last.record.engines if last is not None else []
    return page_of_report(
        name=root.resolve().name,
        nights=views[-MAX_NIGHTS:],
        columns=_columns(views, shown),
        known=known_of(last.record) if last is not None else [],
        last=last,
        findings=shown,
        num_findings=len(findings),
        open=[finding for finding in findings if finding.status in ("", *FAILING)],
        probes={engine.engine: _probes(engine) for engine in engines},
        code={engine.engine: coverage_of(engine.engine, _corpus_of(archive, engine.engine)) for engine in engines},
        laws=sorted({law for engine in engines for law in (*engine.tallies.evaluated, *engine.tallies.not_applicable)}),
        fastest_rate=max((_rate(engine) for night in nights for engine in night.engines), default=0.0) or 1.0,
        errors=errors,
        matrix=_text_of(root / MATRIX),
    )


def _logs_of_campaign(root: Path) -> list[Path]:
    """The op-logs in the folder of a campaign; a campaign of several engines has a folder for each of them."""
    patterns = ["*.oplog", *(f"{slug(name)}{version}/*.oplog" for name in installed() for version in ("", "-*"))]
    return sorted(path for pattern in patterns for path in root.glob(pattern))[:MAX_FINDINGS]


def _view_of(night: Night) -> NightView:
    (code, verdict), step = judgement_of(night), next_step(night)
    if night.exit_code is None:
        verdict, step = NOT_ENDED, ""
    reasons = [*red_reasons(night), *unjudged(night)]
    return NightView(night, verdict, code, reasons, about_server(night), step)


def _columns(nights: Sequence[NightView], findings: Iterable[FindingView]) -> dict[str, NightView | None]:
    """The nights by name, each followed by the imports of these findings that came after it."""
    by_name = {night.record.name: night for night in nights}
    imports = {name for finding in findings for name in finding.by_night if name.endswith(IMPORT)}
    names = [*by_name]
    for name in sorted(imports, reverse=True):
        names.insert(sum(other < name for other in by_name), name)
    return {name: by_name.get(name) for name in names[-MAX_NIGHTS:]}


def _of_archive(archived: Archived, date: str) -> FindingView:
    quarantine = archived.quarantine
    return FindingView(
        archived.summary(),
        archived.log,
        _num_ops(archived),
        archived.status.value,
        quarantine=str(quarantine) if quarantine is not None and quarantine.is_active(date) else "",
        story=archived.story,
        by_night=_by_night(archived.sightings),
    )


def _of_log(path: Path) -> FindingView:
    try:
        log = load_log(path, inside=path.parent)
    except OpLogError as error:
        summary = FindingSummary(engine="", fingerprint=path.stem)
        return FindingView(summary, None, None, status=Status.ERROR.value, part=RunPart(why_not=str(error)))
    header, name = log.header, log.header.expected or path.stem
    return FindingView(
        FindingSummary(engine=header.engine, fingerprint=name, version=header.version), path, len(log.ops)
    )


def _by_night(sightings: Iterable[Sighting]) -> Mapping[str, Status]:
    """The worst status of each night."""
    by_night: dict[str, Status] = {}
    for sighting in sightings:
        status = sighting.status
        by_night[sighting.night] = min(by_night.get(sighting.night, status), status, key=URGENCY.index)
    return by_night


def _num_ops(archived: Archived) -> int | None:
    try:
        return len(load_log(archived.log, inside=archived.root).ops) if archived.log is not None else None
    except OpLogError:  # the part of the finding says why
        return None


def _probes(engine: EngineOfNight) -> list[Probe]:
    """The probes of an engine, those below their floor first."""
    try:
        specs = list(target_of(engine.engine).machines.values())
    except UnknownEngine:
        specs = []
    meanings = {name: meaning for spec in specs for name, meaning in spec.probes.items()}
    reached = engine.tallies.probes
    probes = [Probe(name, meanings.get(name, ""), reached[name], wanted) for name, wanted in engine.wanted.items()]
    return sorted(probes, key=lambda probe: (probe.reached >= probe.wanted, probe.reached, probe.name))


def _corpus_of(archive: Archive, engine: str) -> list[Path]:
    """The corpus in the order of the hashes that end the names, so that the first logs are a sample of all nights."""
    return sorted(archive.corpus_of(engine).glob("*.oplog"), key=lambda path: path.stem.rpartition("-")[::-1])


def _rate(engine: EngineOfNight) -> float:
    """Engine steps per CPU second."""
    return engine.tallies.steps / engine.cpu_seconds if engine.cpu_seconds else 0.0


def _text_of(path: Path) -> str:
    """The text of a file; "" if there is none."""
    try:
        return read_whole(path, most=MAX_STORY_BYTES, inside=path.parent).decode(errors="replace")
    except OSError:
        return ""
