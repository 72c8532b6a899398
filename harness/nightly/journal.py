"""The journal of a night: a file for each finished shard, from which a night continues after any death."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from swarden.harness.core.admission import parse_log
from swarden.harness.core.errors import UsageError
from swarden.harness.core.fingerprint import slug
from swarden.harness.nightly.night_records import ShardRecord
from swarden.harness.nightly.shards import ShardResult
from swarden.harness.search.archive_files import ArchiveError, read, save
from swarden.harness.search.corpus import RareRun
from swarden.harness.search.result import Finding


class ShardFile(msgspec.Struct, frozen=True, kw_only=True):
    """A finished shard, as the journal has it in a file, with its findings and healthy runs for the corpus."""

    record: ShardRecord
    findings: list[Finding] = []
    rare: list[RareRun] = []

    def admitted(self, path: Path) -> "ShardFile":
        """A shard that was read from a file; raises OpLogError if its engine does not admit one of its logs."""
        engine = self.record.engine
        logs = [parse_log(run.log.to_bytes(), path, engine=engine) for run in self.rare]
        return ShardFile(
            record=self.record,
            findings=[finding.admitted(path, engine) for finding in self.findings],
            rare=[RareRun(log, run.features, run.steps) for run, log in zip(self.rare, logs, strict=True)],
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
                yield shard.admitted(path)
            except UsageError as error:
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
