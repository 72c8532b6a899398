"""The first phase of a night: the op-log of each finding of the archive is replayed on the engines of the night."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from swarden.harness.core.files import read_whole
from swarden.harness.core.limits import MAX_OPLOG_BYTES
from swarden.harness.core.replay import Replays, not_run
from swarden.harness.nightly.archive import (
    Archive,
    Archived,
    FindingOfNight,
    Sighting,
    Status,
    figures_of,
    name_of_engine,
)
from swarden.harness.nightly.events import FindingResult
from swarden.harness.nightly.night import Coordinator
from swarden.harness.nightly.pool import Job
from swarden.harness.nightly.shards import replay_logs

LOGS = 3  # of a finding that are replayed in a night


class ReplaySubject(NamedTuple):
    """A finding of the archive, on one engine of the night."""

    archived: Archived
    engine: str

    def __str__(self) -> str:
        return f"{self.archived.fingerprint} on {self.engine}"


def replay(night: Coordinator) -> str:
    """Replay the archive; returns the text of the phase's line."""
    for subject, (path, replays) in night.jobs(_jobs(night)):
        publish(night, subject.archived, _sighting(night, subject, path, replays))
    counts = Counter(finding.sighting.status for finding in night.record.findings)
    return ", ".join(f"{count} {status.value}" for status, count in sorted(counts.items())) or "the archive is empty"


def _jobs(night: Coordinator) -> Iterator[Job]:
    for archived in night.archive.findings(night.record.errors):
        for engine in night.engine_names:
            if name_of_engine(engine) != archived.engine or night.finding(engine, archived.fingerprint):
                continue
            subject = ReplaySubject(archived, engine)
            logs = []
            try:
                for path in logs_of(archived):
                    logs.append((read_whole(path, most=MAX_OPLOG_BYTES, inside=archived.root), path))
            except OSError as error:
                unread = not_run(f"{path}: cannot be read: {error.strerror}")
                publish(night, archived, _sighting(night, subject, path, unread))
            else:
                yield Job(subject, replay_logs, (logs, engine, night.record.mutant, night.limits))
        night.record.errors += archived.errors


def logs_of(archived: Archived) -> list[Path]:
    """At most LOGS op-logs of a finding, the smallest first: the log of the last night, and the smallest other logs."""
    last = archived.log or archived.folder / "NAME.oplog"
    others = sorted(set(archived.folder.glob("*.oplog")) - {last}, key=_size_and_name)
    return sorted([last, *others[: LOGS - 1]], key=_size_and_name)


def smallest_logs(archive: Path, engine: str, errors: list[str]) -> dict[str, Path]:
    """The smallest op-log of each finding of an archive on an engine of this name, by the name of the finding."""
    findings = [finding for finding in Archive(archive).findings(errors) if finding.engine == engine]
    return {finding.name: logs_of(finding)[0] for finding in findings}


def _size_and_name(path: Path) -> tuple[int, str]:
    """The sort key of an op-log; a missing file counts as empty."""
    return path.stat().st_size if path.exists() else 0, path.name


def _sighting(night: Coordinator, subject: ReplaySubject, path: Path, replays: Replays) -> Sighting:
    """The sighting for the replays of the log with this path; a finding that is fixed keeps its log."""
    archived, engine = subject
    last = archived.log.name if archived.log is not None else ""
    status = archived.status_of(replays.verdict, night.record.name, engine)
    log = last if status is Status.FIXED or not last else path.name
    return sighting_of(night, engine, status, log=log, **figures_of(replays))


def sighting_of(night: Coordinator, engine: str, status: Status, **fields: object) -> Sighting:
    """A sighting of this night on this engine."""
    of_night = night.engine(engine)
    common = {"night": night.record.name, "engine": engine, "version": of_night.version}
    return msgspec.convert(common | {"source_hash": of_night.source_hash, "status": status, **fields}, Sighting)


def publish(night: Coordinator, archived: Archived, sighting: Sighting) -> None:
    """Write the sighting to the archive and to the night; it replaces the sighting of this night on this engine."""
    archived.add(sighting)
    published = FindingOfNight(
        folder=archived.name,
        fingerprint=archived.fingerprint,
        sighting=sighting,
        quarantine=archived.quarantine,
        was_open=archived.status_before(night.record.name, sighting.engine) not in (None, Status.FIXED),
    )
    before = night.finding(sighting.engine, archived.fingerprint)
    night.record.findings = [finding for finding in night.record.findings if finding is not before] + [published]
    night.save()
    if before is None or before.sighting.status is not sighting.status:
        night.emit(
            FindingResult(
                engine=sighting.engine,
                fingerprint=archived.fingerprint,
                status=sighting.status.value,
                folder=archived.name,
                is_quarantined=published.is_quarantined(night.record.name),
            )
        )


def log_path(night: Coordinator, finding: FindingOfNight) -> Path:
    """The path of the op-log of a finding of this night."""
    return night.archive.findings_folder / finding.folder / Path(finding.sighting.log).name
