"""Settling: the failures of a night are compared with the archive; new ones are shrunk, run again and published."""

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import takewhile
from pathlib import Path
from typing import NamedTuple

import msgspec

from swarden.harness.core.errors import UsageError
from swarden.harness.core.oplog import OpLog
from swarden.harness.nightly.journal import ShardFile
from swarden.harness.nightly.night import Coordinator
from swarden.harness.nightly.pool import Job
from swarden.harness.nightly.replaying import log_path, publish, sighting_of
from swarden.harness.report.story import replay_line
from swarden.harness.search.archive import FAILING, Archived, Status, name_of_engine
from swarden.harness.search.archive_files import UnreadableFile, read, write
from swarden.harness.search.deaths import is_death
from swarden.harness.search.findings import write as write_log
from swarden.harness.search.result import Finding, Result
from swarden.harness.search.shards import Settled, settle

SEEN_TODAY = (Status.NEW, Status.KNOWN, Status.REOPENED, Status.FLAKY)


class NightFailure(NamedTuple):
    """A failure of one engine, with the smallest of its logs; `is_earlier` if a night that has not ended found it."""

    engine: str
    finding: Finding
    is_earlier: bool = False

    def __str__(self) -> str:
        return f"{self.finding.fingerprint} on {self.engine}"


def settle_findings(night: Coordinator) -> str:
    """Settle the failures of this night; the text of the phase's line."""
    found = [*_found_by_traffic(night), *_found_by_replays(night)]
    found += _found_by_dead_nights(night, found)
    times: Counter[tuple[str, str]] = Counter()
    for record in night.night.shards:
        times.update({(record.engine, name): count for name, count in record.tallies.failures.items()})
    for (engine, name), count in sorted(times.items()):
        published = night.finding(engine, name)
        if published is not None and published.sighting.times != count and (archived := _archived(night, engine, name)):
            publish(night, archived, msgspec.structs.replace(published.sighting, times=count))
    for (engine, finding, is_earlier), settled in night.jobs(_jobs(night, found)):
        if settled.failures or not is_earlier:
            _publish(night, engine, finding, settled, times[engine, finding.fingerprint])
    counts = Counter(one.sighting.status for one in night.night.findings)
    return ", ".join(f"{counts[status]} {status.value}" for status in SEEN_TODAY)


def _jobs(night: Coordinator, found: list[NightFailure]) -> Iterator[Job]:
    """A job for each finding that this night has not published as failing."""
    for one in found:
        published = night.finding(one.engine, one.finding.fingerprint)
        if published is None or published.sighting.status not in SEEN_TODAY:
            yield Job(one, settle, (one.finding, one.engine, night.limits))


def _found_by_traffic(night: Coordinator) -> list[NightFailure]:
    shards = night.journal.shards(night.night.errors)
    return _smallest(
        (shard.record.engine, one.finding(night.folder, shard.record.engine))
        for shard in shards
        for one in shard.findings
    )


def _found_by_dead_nights(night: Coordinator, found: Iterable[NightFailure]) -> list[NightFailure]:
    """The failures of the earlier nights that have not ended, without these and those that the archive has as open."""
    settled = {(name_of_engine(one.engine), one.finding.fingerprint) for one in found}
    settled |= {
        (one.engine, one.fingerprint) for one in night.archive.findings([]) if one.sightings and one.status in FAILING
    }
    return [
        one._replace(is_earlier=True)
        for one in _smallest(_journals_of_dead_nights(night))
        if (name_of_engine(one.engine), one.finding.fingerprint) not in settled
    ]


def _journals_of_dead_nights(night: Coordinator) -> Iterator[tuple[str, Finding]]:
    """The failures on engines of this night, with its mutant, that stand in the journals of earlier nights.

    A log that this build cannot run is told.
    """
    engines, errors = {one.engine for one in night.night.engines}, night.night.errors
    for one in takewhile(lambda one: one.name != night.night.name, night.archive.nights([])):
        if one.exit_code is not None or one.mutant != night.night.mutant:
            continue
        for path in sorted((night.archive.nights_folder / one.name / "shards").glob("*.json")):
            try:
                shard = read(path, ShardFile, night.archive.root)
                if shard.record.engine in engines:
                    for finding in shard.findings:
                        yield shard.record.engine, finding.finding(path, shard.record.engine)
            except UsageError as error:
                errors.append(str(error))


def _smallest(found: Iterable[tuple[str, Finding]]) -> list[NightFailure]:
    """One failure for each engine and fingerprint: that with the smallest log."""
    results: dict[str, Result] = {}
    for engine, finding in found:
        results.setdefault(engine, Result()).add(Result(findings={finding.fingerprint: finding}))
    return [NightFailure(engine, one) for engine, result in results.items() for one in result.findings.values()]


def _found_by_replays(night: Coordinator) -> Iterator[NightFailure]:
    """The failures with which the archive's logs fail instead of their own."""
    for one in night.night.findings:
        if one.sighting.status is Status.CHANGED and one.sighting.fingerprints:  # none in a damaged night
            name, engine = one.sighting.fingerprints[0], one.sighting.engine
            log = OpLog.load(log_path(night, one), engine=engine, inside=night.archive.root).as_regression(name)
            header = msgspec.structs.replace(log.header, mutant=night.night.mutant)
            died = f"a replay of {one.fingerprint} ended with {name}" if is_death(name) else ""
            yield NightFailure(engine, Finding(name, OpLog(header, log.ops), 0.0, died=died))


def _publish(night: Coordinator, engine: str, finding: Finding, settled: Settled, times: int) -> None:
    """Write a settled finding to the archive, or tell that a crash did not repeat.

    If the finding in the archive cannot be read, only the log is written, into the folder of the night.
    """
    if finding.died and not settled.failures:
        owed = night.engine(engine).owed
        note = f"{finding.fingerprint} did not repeat: {finding.died.splitlines()[0]}"
        owed += [note] * (note not in owed)
        write_log(settled.log, finding.fingerprint, night.folder / "unconfirmed", night.archive.root, with_test=False)
        night.save()
        return
    name = settled.fingerprints[0]  # of a crash that was repeated, that of its error
    published = night.finding(engine, name)
    if published is not None and published.sighting.status in SEEN_TODAY:
        return
    archived = _archived(night, engine, name)
    if archived is None:
        write_log(settled.log, name, night.folder / "unpublished", night.archive.root, with_test=False)
        night.save()
        return
    status = archived.status_of_failure(night.night.name, engine)
    sighting = sighting_of(
        night,
        engine,
        status if settled.is_confirmed else Status.FLAKY,
        fingerprints=settled.fingerprints,
        failures=settled.failures,
        runs=settled.runs,
        times=times,
        log=_write(archived, name, settled).name,
        why=settled.why,
    )
    publish(night, archived, sighting)


def _archived(night: Coordinator, engine: str, name: str) -> Archived | None:
    """The finding in the archive; None, and an error of the night, if its finding.json cannot be read."""
    try:
        return night.archive.finding(engine, name)
    except UnreadableFile as error:
        night.night.errors.append(str(error))
        return None


def _write(archived: Archived, name: str, settled: Settled) -> Path:
    """Write the log, its pytest file and its story; returns the path of the log."""
    path = write_log(settled.log, name, archived.folder, archived.root, with_test=not is_death(name))
    last = str(replay_line(path))
    story = [*(line for line in settled.story if not line.startswith(last.split()[0])), last]
    write(path.with_suffix(".txt"), "\n".join([*story, ""]).encode(), archived.root)
    return path
