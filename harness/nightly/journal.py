"""The journal of a night: a file for each finished shard, from which a night continues after any death."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from swarden.harness.core.admission import parse_log
from swarden.harness.core.fingerprint import slug
from swarden.harness.core.registry import target_for
from swarden.harness.nightly.night_records import ShardRecord
from swarden.harness.nightly.shards import ShardResult
from swarden.harness.report.story import StoryLine, StoryPart
from swarden.harness.search.archive_files import ArchiveError, read, save
from swarden.harness.search.corpus import RareRun
from swarden.harness.search.result import Finding
from swarden.harness.search.verification import UNKNOWN, Cause


class FindingFile(msgspec.Struct, frozen=True, kw_only=True):
    """A finding that is not confirmed yet; `log` is the text of its op-log, `cause` is what is known of its cause.

    Only the same build continues a shrink: a candidate that passed in another build may fail in this one.
    """

    fingerprint: str
    log: str
    found_cpu_seconds: float
    died: str = ""
    story: list[str] = []
    passed: list[str] = []
    recorded: str = ""
    cause: Cause = UNKNOWN
    key: list[str] = []
    suffix: str = ""

    @classmethod
    def of(cls, finding: Finding) -> "FindingFile":
        return cls(
            fingerprint=finding.fingerprint,
            log=finding.log.to_bytes().decode(),
            found_cpu_seconds=finding.found_cpu_seconds,
            died=finding.died,
            story=[str(line) for line in finding.story],
            passed=sorted(finding.passed),
            recorded=str(finding.recorded or ""),
            cause=finding.cause,
            key=sorted(finding.key),
            suffix=finding.suffix,
        )

    def finding(self, path: Path, engine: str) -> Finding:
        log = parse_log(self.log.encode(), path, engine=engine)
        return Finding(
            self.fingerprint,
            log,
            self.found_cpu_seconds,
            engine,
            died=self.died,
            story=[StoryLine(StoryPart.EVIDENCE, line) for line in self.story],
            passed=frozenset(self.passed if log.header.source_hash == target_for(log.header).source_hash() else ()),
            recorded=Path(self.recorded) if self.recorded else None,
            cause=self.cause,
            key=frozenset(self.key),
            suffix=self.suffix,
        )


class RareFile(msgspec.Struct, frozen=True, kw_only=True):
    """A healthy run for the corpus."""

    log: str
    features: list[int]
    steps: int


class ShardFile(msgspec.Struct, frozen=True, kw_only=True):
    """A finished shard, as the journal has it in a file."""

    record: ShardRecord
    findings: list[FindingFile] = []
    rare: list[RareFile] = []

    @classmethod
    def of(cls, record: ShardRecord, findings: Sequence[Finding], rare: Sequence[RareRun]) -> "ShardFile":
        return cls(
            record=record,
            findings=[FindingFile.of(one) for one in findings],
            rare=[
                RareFile(log=one.log.to_bytes().decode(), features=sorted(one.features), steps=one.steps)
                for one in rare
            ],
        )


class Journal:
    """The folder of the shards of one night, ARCHIVE/nights/NIGHT/shards; the night is on these engines."""

    def __init__(self, folder: Path, engines: Sequence[str] = ()) -> None:
        self.folder = folder
        self.engines = engines

    def path(self, engine: str, ordinal: int) -> Path:
        return self.folder / f"{slug(engine)}-{ordinal:05d}.json"

    def add(self, shard: ShardFile) -> None:
        save(self.path(shard.record.engine, shard.record.ordinal), shard, self.folder.parents[2])

    def shards(self, errors: list[str]) -> Iterator[ShardFile]:
        """The finished shards; a shard that cannot be read is reported and renamed, and is run again."""
        for path in sorted(self.folder.glob("*.json")):
            try:
                shard = read(path, ShardFile, self.folder.parents[2])
                if (engine := shard.record.engine) not in self.engines:
                    raise ArchiveError(f"{path}: is of {engine}, which is no engine of its night; move it away")
                yield shard
            except ArchiveError as error:
                errors.append(str(error))
                path.rename(path.with_suffix(".unreadable"))

    def count(self) -> int:
        """The number of finished shards."""
        return sum(1 for _ in self.folder.glob("*.json"))

    def clear(self) -> None:
        """Remove the shards; night.json has their records."""
        for path in self.folder.glob("*.json"):
            path.unlink()


def record_of(engine: str, ordinal: int, batches: int, done: ShardResult) -> ShardRecord:
    """The record of a shard that has just ended."""
    result = done.result
    return ShardRecord(
        engine=engine,
        ordinal=ordinal,
        first_batch=ordinal * batches,
        batches=batches,
        node=done.node,
        tallies=result.tallies,
        seconds=round(result.seconds, 3),
        cpu_seconds=round(result.cpu_seconds, 3),
        replayed=sorted(result.replayed),
        replaced=result.replaced,
        unexplained_deaths=[*result.unexplained_deaths, *result.target_faults.values(), *filter(None, [result.gone])],
        diverged=result.diverged,
    )
