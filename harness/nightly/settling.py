"""Confirms the failures of a night: compares them with the archive, shrinks the new ones, reruns and publishes them."""

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import takewhile

import msgspec

from swarden.harness.core.admission import load_log
from swarden.harness.core.errors import UsageError
from swarden.harness.core.replay import Verdict, is_death
from swarden.harness.nightly.archive import FAILING, Archived, Status, name_of_engine
from swarden.harness.nightly.journal import ShardFile
from swarden.harness.nightly.night import Coordinator
from swarden.harness.nightly.pool import Job
from swarden.harness.nightly.replaying import log_path, publish, sighting_of
from swarden.harness.nightly.shards import settle
from swarden.harness.report.story import replay_line
from swarden.harness.search.archive_files import UnreadableFile, read
from swarden.harness.search.findings import write as write_log
from swarden.harness.search.result import Finding, Result

SEEN_TODAY = (Status.NEW, Status.RECURRING, Status.REOPENED, Status.FLAKY)


def settle_findings(night: Coordinator) -> str:
    """Confirm the failures of this night; returns the text of the phase's line."""
    shards = night.journal.shards(night.record.errors)
    by_traffic = _smallest(finding for shard in shards for finding in shard.findings)
    findings = [*by_traffic, *_found_by_replays(night)]
    earlier = _found_by_dead_nights(night, findings)
    times: Counter[tuple[str, str]] = Counter()
    for record in night.record.shards:
        times.update({(record.engine, name): count for name, count in record.tallies.failures.items()})
    for (engine, name), count in sorted(times.items()):
        published = night.finding(engine, name)
        if published is not None and published.sighting.times != count and (archived := _archived(night, engine, name)):
            publish(night, archived, msgspec.structs.replace(published.sighting, times=count))
    for finding, (settled, *crashes) in night.jobs(_jobs(night, [*findings, *earlier])):
        for crash in crashes:  # with the fix of a known bug
            _publish(night, crash, crash, times=1)
        if settled.cause.bugs:
            night.engine(finding.engine).tallies.attribute(finding.fingerprint, settled.cause.name)
        elif settled.failures or not any(other is finding for other in earlier):
            _publish(night, finding, settled, night.engine(finding.engine).tallies.runs_of(finding, findings))
    counts = Counter(finding.sighting.status for finding in night.record.findings)
    return ", ".join(f"{counts[status]} {status.value}" for status in SEEN_TODAY)


def _jobs(night: Coordinator, findings: list[Finding]) -> Iterator[Job]:
    """A job for each finding that this night has not published as failing."""
    for finding in findings:
        published = night.finding(finding.engine, finding.name)
        if published is None or published.sighting.status not in SEEN_TODAY:
            yield Job(finding, settle, (finding, finding.engine, night.limits))


def _found_by_dead_nights(night: Coordinator, findings: Iterable[Finding]) -> list[Finding]:
    """The failures of earlier nights that have not ended, without these `findings` and those open in the archive."""
    settled = {(name_of_engine(finding.engine), finding.name) for finding in findings}
    archived = [finding for finding in night.archive.findings([]) if finding.sightings]
    settled |= {(finding.engine, finding.fingerprint) for finding in archived if finding.status in FAILING}
    dead = _smallest(_journals_of_dead_nights(night))
    return [finding for finding in dead if (name_of_engine(finding.engine), finding.name) not in settled]


def _journals_of_dead_nights(night: Coordinator) -> Iterator[Finding]:
    """Failures of this night's engines and mutant in journals of earlier nights; a log that cannot run is reported."""
    engines, errors = {engine.engine for engine in night.record.engines}, night.record.errors
    for dead in takewhile(lambda earlier: earlier.name != night.record.name, night.archive.nights([])):
        if dead.exit_code is not None or dead.mutant != night.record.mutant:
            continue
        for path in sorted((night.archive.nights_folder / dead.name / "shards").glob("*.json")):
            try:
                shard = read(path, ShardFile, night.archive.root)
                if shard.record.engine in engines:
                    yield from shard.admitted(path).findings
            except UsageError as error:
                errors.append(str(error))


def _smallest(findings: Iterable[Finding]) -> list[Finding]:
    """One failure for each engine, fingerprint and key: the failure with the smallest log."""
    results: dict[str, Result] = {}
    for finding in findings:
        results.setdefault(finding.engine, Result()).add(Result(findings={finding.fingerprint: finding}))
    return [finding for result in results.values() for finding in result.findings.values()]


def _found_by_replays(night: Coordinator) -> Iterator[Finding]:
    """The failures of logs of the archive that failed with another fingerprint than their own."""
    for finding in night.record.findings:
        if finding.sighting.status is Status.CHANGED and finding.sighting.fingerprints:  # none in a damaged night
            name, engine = finding.sighting.fingerprints[0], finding.sighting.engine
            log = load_log(log_path(night, finding), engine=engine, inside=night.archive.root)
            died = f"a replay of {finding.fingerprint} ended with {name}" if is_death(name) else ""
            yield Finding(name, log.with_header(expected=name, mutant=night.record.mutant), 0.0, engine, died=died)


def _publish(night: Coordinator, finding: Finding, settled: Finding, times: int) -> None:
    """Write a confirmed finding to the archive, or report that a crash did not repeat.

    If the finding in the archive cannot be read, only the log is written, into the folder of the night.
    """
    engine = finding.engine
    assert settled.verdict is not None, f"{settled} was not run again"
    if finding.died and not settled.failures:
        owed = night.engine(engine).owed
        note = f"{finding.fingerprint} did not repeat: {finding.died.splitlines()[0]}"
        if note not in owed:
            owed.append(note)
        write_log(settled.log, finding.fingerprint, night.folder / "unconfirmed", night.archive.root, with_test=False)
        night.save()
        return
    name = settled.name  # of a crash that repeats as an error, the fingerprint of the error
    published = night.finding(engine, name)
    if published is not None and published.sighting.status in SEEN_TODAY:
        return
    archived = _archived(night, engine, name)
    if archived is None:
        write_log(settled.log, name, night.folder / "unpublished", night.archive.root, with_test=False)
        night.save()
        return
    commands = []
    if (inner := settled.inner) is not None:  # in a folder of its own: the others are logs of the night's engine
        path = write_log(inner.log, inner.fingerprint, archived.folder / "inner", archived.root)
        commands.append(str(replay_line(path)))
    log = archived.keep(settled.log, map(str, settled.story), *commands, with_test=not is_death(name))
    sighting = sighting_of(
        night,
        engine,
        archived.status_of(Verdict.FAILED if settled.is_confirmed else Verdict.FLAKY, night.record.name, engine),
        fingerprints=settled.fingerprints,
        failures=settled.failures,
        runs=settled.runs,
        times=times,
        log=log,
        why=settled.why,
    )
    publish(night, archived, sighting)


def _archived(night: Coordinator, engine: str, name: str) -> Archived | None:
    """The finding in the archive; None, and an error of the night, if its finding.json cannot be read."""
    try:
        return night.archive.finding(engine, name)
    except UnreadableFile as error:
        night.record.errors.append(str(error))
        return None
