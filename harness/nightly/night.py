"""The coordinator of a night: its phases one after the other, and a folder from which it continues after any death."""

import hashlib
import secrets
import shlex
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

from swarden.harness.core.errors import UsageError
from swarden.harness.core.printable import printable
from swarden.harness.core.process import ProcessLimits
from swarden.harness.core.registry import target_of
from swarden.harness.core.target import Launch
from swarden.harness.core.validation import shortened
from swarden.harness.nightly.archive import Archive, EngineOfNight, FindingOfNight, Night, latest
from swarden.harness.nightly.events import Event, Phase, ShardLost
from swarden.harness.nightly.journal import Journal
from swarden.harness.nightly.night_records import PhaseRecord
from swarden.harness.nightly.pool import Job, JobPool
from swarden.harness.report.wording import counted
from swarden.harness.search.archive_files import check_inside, read, save
from swarden.harness.search.traffic.profiles import PROFILES, Profile

NIGHT_FILE = "night.json"


@dataclass
class Coordinator:
    """One night: its record, its archive, and the pool that runs its jobs."""

    archive: Archive
    record: Night
    pool: JobPool
    limits: ProcessLimits
    emit: Callable[[Event], None] = lambda _: None
    on_begin: Callable[[str], None] = lambda _: None  # gets a line when a phase begins
    on_wait: Callable[[int], None] = lambda _: None  # gets the number of its jobs that have ended

    @property
    def folder(self) -> Path:
        return self.archive.nights_folder / self.record.name

    @property
    def journal(self) -> Journal:
        return Journal(self.folder / "shards", self.engine_names)

    @property
    def engine_names(self) -> list[str]:
        return [engine.engine for engine in self.record.engines]

    @property
    def profile(self) -> Profile:
        return PROFILES[self.record.profile]

    def run(self, phases: Sequence["NightPhase"]) -> Iterator[str]:
        """Run the phases that have not ended yet; yields a line after each."""
        self.record.workers = self.pool.width
        ended = {phase.name for phase in self.record.phases}
        for phase in phases:
            if phase.name in ended:
                continue
            self.on_begin(f"{phase.name} begins: {phase.about}")
            start, cpu_start = time.monotonic(), time.process_time()
            line = phase.run(self)
            seconds = round(time.monotonic() - start, 3)
            cpu_seconds = round(time.process_time() - cpu_start, 3)
            record = PhaseRecord(name=phase.name, line=line, seconds=seconds, cpu_seconds=cpu_seconds)
            self.record.phases.append(record)
            self.save()
            self.emit(Phase(night=self.record.name, name=phase.name, line=line, seconds=seconds))
            yield f"{phase.name}: {line}"

    def jobs(self, jobs: Iterable[Job]) -> Iterator[tuple[Any, Any]]:
        """The results of jobs in the order in which they end; see JobPool.run."""
        return self.pool.run(jobs, self._on_loss, self.on_wait)

    def save(self) -> None:
        # A phase that starts again finds the errors again; the name of a file may not be UTF-8.
        self.record.errors = list(dict.fromkeys(map(printable, self.record.errors)))
        save(self.folder / NIGHT_FILE, self.record, self.archive.root)

    def engine(self, name: str) -> EngineOfNight:
        return next(engine for engine in self.record.engines if engine.engine == name)

    def finding(self, engine: str, fingerprint: str) -> FindingOfNight | None:
        """The result of this night for a finding on an engine, if there is one already."""
        for finding in self.record.findings:
            if (finding.sighting.engine, finding.fingerprint) == (engine, fingerprint):
                return finding
        return None

    def _on_loss(self, job: Job, error: Exception) -> None:
        self.emit(ShardLost(job=job.name, reason=repr(error)))


class NightPhase(NamedTuple):
    """A part of a night: the function that runs it and returns the text of its line, and what it is about to do."""

    name: str
    run: Callable[[Coordinator], str]
    about: str


class Order(NamedTuple):
    """The options of a night, as the user has set them."""

    engines: Sequence[str]
    command: str
    minutes: float | None = None
    runs: int | None = None
    profile: str = "nightly"
    seed: int | None = None
    mutant: str | None = None
    is_gate: bool = False
    fixes: Sequence[str] = ()
    settings: Mapping[str, Any] = {}
    about: str = ""
    line: Launch = Launch()


def begin(archive: Archive, order: Order) -> Night:
    """A new night with a folder of its own; its seed differs from those of earlier nights, unless the order has one."""
    earlier = archive.nights([])
    now = datetime.now(UTC)
    today = sum(before.name.startswith(f"{now:%Y-%m-%d}") for before in earlier)
    name = f"{now:%Y-%m-%d}-{today + 1:02d}-{secrets.token_hex(2)}"  # two machines can begin a night at the same time
    night = Night(
        name=name,
        command=order.command,
        swarden=version("swarden"),
        seed=order.seed if order.seed is not None else fresh_seed(name, [before.seed for before in earlier]),
        profile=order.profile,
        minutes=order.minutes,
        runs=order.runs,
        mutant=order.mutant,
        fixes=list(order.fixes),
        is_gate=order.is_gate,
        started=f"{now:%Y-%m-%dT%H:%M:%SZ}",
        after=latest({before.name: before.after for before in earlier}),
        settings=dict(order.settings),
        about=order.about,
        machine=order.line.machine,
        engines=[_engine_of_night(engine) for engine in order.engines],
        not_ended=[*_lines_of(archive, [before for before in earlier if before.exit_code is None])],
    )
    save(archive.nights_folder / name / NIGHT_FILE, night, archive.root)
    return night


def _lines_of(archive: Archive, not_ended: Iterable[Night]) -> Iterator[str]:
    """A line for each of these nights that has shards, with the command that continues it."""
    for night in not_ended:
        folder = archive.nights_folder / night.name
        if shards := Journal(folder / "shards").count():
            command = f"swarden nightly --resume {shlex.quote(str(folder))}"
            yield f"night {night.name} has not ended: {counted(shards, 'shard')} not settled; to continue: {command}"


def resumed(folder: Path) -> tuple[Archive, Night]:
    """The night in this folder and its archive; raises UsageError if it has ended, or if an engine has changed."""
    archive = Archive(folder.resolve().parents[1])
    night = read(folder / NIGHT_FILE, Night, archive.root)
    check_inside(folder / "shards", archive.root)
    if night.exit_code is not None:
        raise UsageError(f"--resume: {folder} has ended; start a new night")
    _check(folder, night)
    for then in night.engines:
        now = _engine_of_night(then.engine)
        if (now.version, now.source_hash) != (then.version, then.source_hash):
            raise UsageError(f"--resume: {then.engine} has changed since {folder} began; start a new night")
    return archive, night


def _check(folder: Path, night: Night) -> None:
    """Raise UsageError if night.json is damaged in a field that only a resumed night reads."""
    path = folder / NIGHT_FILE
    if night.name != folder.resolve().name:
        raise UsageError(f"{path}: name is {shortened(night.name)}, want that of its folder; restore it")
    if night.profile not in PROFILES:
        raise UsageError(
            f"{path}: profile is {shortened(night.profile)}, want one of {', '.join(PROFILES)}; restore it"
        )
    named = {finding.sighting.engine for finding in night.findings} | {shard.engine for shard in night.shards}
    named |= {canary.engine for canary in night.canaries}
    if others := named - {engine.engine for engine in night.engines}:
        raise UsageError(f"{path}: engine {shortened(min(others))} has results, but is none of the night; restore it")
    try:
        start_of(night)
    except ValueError as error:
        raise UsageError(f"{path}: started is {shortened(night.started)}, want a time in UTC; restore it") from error


def start_of(night: Night) -> datetime:
    """The start of a night; raises ValueError if a damaged night has none."""
    return datetime.strptime(night.started, "%Y-%m-%dT%H:%M:%S%z")


def fresh_seed(name: str, earlier: Sequence[int]) -> int:
    """A seed from the name of a night, which begins with its date, and from the seeds of the nights before it."""
    used = set(earlier)
    seed = seed_from("/".join([name, *map(str, sorted(used))]))
    while seed in used:
        seed = seed_from(str(seed))
    return seed


def seed_from(text: str) -> int:
    """A seed of 32 bits."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=4).digest())


def _engine_of_night(engine: str) -> EngineOfNight:
    target = target_of(engine)
    return EngineOfNight(engine=engine, version=target.version(), source_hash=target.source_hash())
