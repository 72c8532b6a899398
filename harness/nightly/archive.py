"""The archive of nightly runs: a directory of plain files, written by several machines, and merged by copying.

    findings/ENGINE-FINGERPRINT-HASH/   one finding of one engine, in whichever version
        finding.json                    its summary, made from the files beside it
        NAME.oplog test_NAME.py NAME.txt   a shrunk op-log, the pytest file that replays it, and its story
        seen/NIGHT-ENGINE.json          a sighting: the result for this finding in one night, on one engine
        quarantine.json
    nights/NIGHT/                       one night: night.json, events.jsonl, report.md, junit.xml, metrics.txt
        shards/ENGINE-ORDINAL.json      a finished shard, until the night ends
    corpus/ENGINE/                      the corpus of one engine

A file is written to a temporary name and renamed.  Nothing is read or written outside of the directory: a link that
leads out of it is refused.  Every file but finding.json, quarantine.json and those of the corpus has one writer, so
copying one archive over another loses no sighting.  A file that cannot be read is never removed.
"""

import hashlib
from bisect import insort
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from enum import StrEnum
from functools import cached_property
from itertools import takewhile
from pathlib import Path
from typing import Annotated, Any

import msgspec

from swarden.harness.core.exit_codes import ExitCode
from swarden.harness.core.files import read_whole
from swarden.harness.core.fingerprint import slug
from swarden.harness.core.limits import MAX_STORY_BYTES
from swarden.harness.core.oplog import OpLog
from swarden.harness.core.replay import Replays, Verdict
from swarden.harness.nightly.night_records import Canary, PhaseRecord, ShardRecord
from swarden.harness.report.story import REPLAY, replay_line
from swarden.harness.search import archive_files
from swarden.harness.search.findings import write as write_log
from swarden.harness.search.mutes import Mute
from swarden.harness.search.result import Tallies

Predecessors = Mapping[str, Collection[str]]  # for each night some nights before it, at least the last ones


HASH_LEN = 8  # hex digits
IMPORT = "-import"  # the end of the name of an import, which begins with the name of the night before it
FileName = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.+-]*$", max_length=200)]  # no path


class Status(StrEnum):
    """The status of a finding in one night."""

    NEW = "new"
    RECURRING = "recurring"  # it was open, and fails again
    REOPENED = "reopened"  # it was fixed, and fails again
    FIXED = "fixed"  # its log passes, and no traffic of the night had this failure
    CHANGED = "changed"  # its log fails with another fingerprint
    FLAKY = "flaky"  # the runs of its log differ
    ERROR = "error"  # its log cannot be replayed


FAILING = (Status.NEW, Status.REOPENED, Status.CHANGED, Status.FLAKY, Status.RECURRING)
URGENCY = [*FAILING, Status.ERROR, Status.FIXED]  # the worst first


class Sighting(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The result for a finding in one night on one engine ("NAME" or "NAME==VERSION")."""

    night: FileName
    engine: str
    version: str = ""
    source_hash: str = ""
    status: Status
    fingerprints: list[str] = []
    failures: int = 0  # of the replays
    runs: int = 0  # replays of the log
    times: int = 0  # runs of random traffic with this failure
    log: archive_files.LogName = ""  # the file name of the op-log
    why: str = ""  # the reason of an ERROR
    after: list[str] = []  # the latest of the earlier nights of this finding


def figures_of(replays: Replays) -> dict[str, Any]:
    """The fields of a sighting that come from the replays of a log."""
    names, why = list(replays.fingerprints), replays.diverged
    return {"fingerprints": names, "failures": replays.failures, "runs": replays.runs, "why": why}


class FindingSummary(msgspec.Struct, frozen=True, kw_only=True):
    """finding.json; all but the engine and the fingerprint follows from the sightings."""

    format: int = 1
    engine: str  # the name of the target
    fingerprint: str
    version: str = ""  # of the last night, as are the status and the log
    status: Status = Status.NEW
    first_seen: str = ""  # a night in which the finding failed
    last_seen: str = ""
    seen: int = 0  # the number of such nights
    log: str = ""  # the file name of the smallest log that still fails, among those that were replayed
    quarantine: Mute | None = None


class FindingOfNight(msgspec.Struct, frozen=True, kw_only=True):
    """A finding as night.json has it; `folder` is its folder in `findings/`, `was_open` whether it was open before."""

    folder: FileName
    fingerprint: str
    sighting: Sighting
    quarantine: Mute | None = None
    was_open: bool = False

    def is_quarantined(self, night: str) -> bool:
        """Whether the finding is in quarantine in that night."""
        return self.quarantine is not None and self.quarantine.is_active(date_of(night))


class EngineOfNight(msgspec.Struct, kw_only=True):
    """The campaign of one engine in a night: the sum of its shards, and its judgement."""

    engine: str
    version: str
    source_hash: str
    tallies: Tallies = msgspec.field(default_factory=Tallies)
    shards: int = 0
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    wanted: dict[str, int] = {}  # the number of runs that must reach each probe
    owed: list[str] = []  # why it is red without a violation
    diverged: list[str] = []  # nondeterministic runs
    why_not_judged: str = ""  # "" if the coverage was judged


class Night(msgspec.Struct, kw_only=True):
    """night.json: the settings of a night, and its results so far."""

    format: int = 1
    name: FileName
    command: str
    swarden: str
    seed: int
    profile: str
    minutes: float | None = None  # of all campaigns
    runs: int | None = None  # of each engine
    mutant: str | None = None
    fixes: list[str] = []
    settings: dict[str, Any] = {}
    about: str = ""  # the report of a server about itself, or the options of a launch line that are not driven
    machine: str | None = None
    is_gate: bool = False  # findings that were open before do not make the night red
    workers: int = 1  # shards that run at a time
    started: str
    ended: str = ""
    after: list[str] = []  # the last nights of the archive when this one began
    engines: list[EngineOfNight]
    phases: list[PhaseRecord] = []
    shards: list[ShardRecord] = []
    canaries: list[Canary] = []
    findings: list[FindingOfNight] = []
    errors: list[str] = []
    not_ended: list[str] = []  # a line for each earlier night that died with shards
    exit_code: ExitCode | None = None  # None until it has ended


class Archived:
    """One finding of an archive, as it was when its folder was read; `errors` are the files that cannot be read."""

    def __init__(self, folder: Path) -> None:
        """Raises UnreadableFile if finding.json cannot be read."""
        self.folder, self.root = folder, folder.parents[1]
        self.errors: list[str] = []
        stored = archive_files.read(folder / "finding.json", FindingSummary, self.root)
        self.engine, self.fingerprint = stored.engine, stored.fingerprint

    @property
    def name(self) -> str:
        return self.folder.name

    @cached_property
    def sightings(self) -> list[Sighting]:
        """The sightings, the earliest night first."""
        sightings = [*archive_files.read_all(self.folder.glob("seen/*.json"), Sighting, self.errors, self.root)]
        order = positions(_predecessors(sightings))
        return sorted(sightings, key=lambda sighting: (order[sighting.night], sighting.engine))

    @cached_property
    def quarantine(self) -> Mute | None:
        path = self.folder / "quarantine.json"
        paths = [path] if path.exists() else []
        return next(archive_files.read_all(paths, Mute, self.errors, self.root), None)

    @property
    def log(self) -> Path | None:
        """The op-log of the last night that has one."""
        logs = [sighting.log for sighting in self.sightings if sighting.log]
        return self.folder / Path(logs[-1]).name if logs else None

    @cached_property
    def story(self) -> str:
        """The story of the log; "" if there is none, or if it cannot be read."""
        if self.log is None:
            return ""
        path = self.log.with_suffix(".txt")
        try:
            return read_whole(path, most=MAX_STORY_BYTES, inside=self.root).decode(errors="replace")
        except FileNotFoundError:
            return ""
        except OSError as error:
            self.errors.append(archive_files.unreadable(path, error))
            return ""

    @property
    def status(self) -> Status:
        """The worst status of the last night."""
        last = [sighting.status for sighting in self.sightings if sighting.night == self.sightings[-1].night]
        return min(last, key=URGENCY.index, default=Status.NEW)

    def status_before(self, night: str, engine: str) -> Status | None:
        """The status before a night on this engine, else on any engine; nights that could not run it are skipped."""
        earlier = [sighting for sighting in self._before(night) if sighting.status is not Status.ERROR]
        same = [sighting for sighting in earlier if sighting.engine == engine]
        return (same or earlier)[-1].status if earlier else None

    def status_of(self, verdict: Verdict, night: str, engine: str) -> Status:
        """The status by the verdict on its log in a night; if the log fails, the status before decides."""
        if verdict is not Verdict.FAILED:
            return Status(verdict.value.lower())
        before = self.status_before(night, engine)
        return {None: Status.NEW, Status.FIXED: Status.REOPENED}.get(before, Status.RECURRING)

    def summary(self) -> FindingSummary:
        failing = [sighting.night for sighting in self.sightings if sighting.status in FAILING]
        return FindingSummary(
            engine=self.engine,
            fingerprint=self.fingerprint,
            version=self.sightings[-1].version if self.sightings else "",
            status=self.status,
            first_seen=next(iter(failing), ""),
            last_seen=next(reversed(failing), ""),
            seen=len(set(failing)),
            log=self.log.name if self.log else "",
            quarantine=self.quarantine,
        )

    def add(self, sighting: Sighting) -> None:
        """Write a sighting that comes after the earlier ones; the same sighting again changes nothing."""
        earlier = Archived(self.folder)._before(sighting.night)
        sighting = msgspec.structs.replace(sighting, after=latest(_predecessors(earlier)))
        archive_files.save(self.folder / "seen" / f"{sighting.night}-{slug(sighting.engine)}.json", sighting, self.root)
        self._refresh()

    def keep(self, log: OpLog, story: Iterable[str], *commands: str, with_test: bool) -> str:
        """Write a log that expects its failure, its pytest file, and its story; returns the name of the file.

        The story ends with the command that replays the log, and further ones.
        """
        path = write_log(log, self.fingerprint, self.folder, self.root, with_test=with_test)
        if lines := [line for line in story if not line.startswith(REPLAY)]:
            text = "\n".join([*lines, str(replay_line(path)), *commands, ""])
            archive_files.write(path.with_suffix(".txt"), text.encode(), self.root)
        return path.name

    def put_in_quarantine(self, quarantine: Mute) -> None:
        archive_files.save(self.folder / "quarantine.json", quarantine, self.root)
        self._refresh()

    def _before(self, night: str) -> Iterator[Sighting]:
        """The sightings of earlier nights; all sightings, if this night has none yet."""
        return takewhile(lambda sighting: sighting.night != night, self.sightings)

    def _refresh(self) -> None:
        """Write finding.json again from the files beside it."""
        archive_files.save(self.folder / "finding.json", Archived(self.folder).summary(), self.root)


class Archive:
    """An archive in a directory, which is created when it is first written to."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @property
    def findings_folder(self) -> Path:
        return self.root / "findings"

    @property
    def nights_folder(self) -> Path:
        return self.root / "nights"

    def corpus_of(self, engine: str) -> Path:
        """The folder of the corpus that all versions of an engine share; raises ArchiveError for one elsewhere."""
        folder = self.root / "corpus" / slug(name_of_engine(engine))
        archive_files.check_inside(folder, self.root)
        return folder

    def findings(self, errors: list[str]) -> list[Archived]:
        """The findings by folder name; a line for each that cannot be read is added to `errors`."""
        archived = []
        for folder in sorted(path for path in self.findings_folder.glob("*") if path.is_dir()):
            try:
                archived.append(Archived(folder))
            except archive_files.ArchiveError as error:
                errors.append(str(error))
        return archived

    def finding(self, engine: str, fingerprint: str) -> Archived:
        """The finding of an engine with this fingerprint; its folder is created.

        Raises UnreadableFile if its finding.json cannot be read, ArchiveError if it cannot be written.
        """
        folder = self.findings_folder / folder_of(engine, fingerprint)
        if not (folder / "finding.json").exists():
            summary = FindingSummary(engine=name_of_engine(engine), fingerprint=fingerprint)
            archive_files.save(folder / "finding.json", summary, self.root)
        return Archived(folder)

    def nights(self, errors: list[str]) -> list[Night]:
        """The nights, the earliest first; a line for each that cannot be read is added to `errors`."""
        nights = [*archive_files.read_all(self.nights_folder.glob("*/night.json"), Night, errors, self.root)]
        order = positions({night.name: night.after for night in nights})
        return sorted(nights, key=lambda night: order[night.name])


def _predecessors(sightings: Iterable[Sighting]) -> dict[str, list[str]]:
    predecessors: dict[str, list[str]] = {}
    for sighting in sightings:
        predecessors.setdefault(sighting.night, []).extend(sighting.after)
    return predecessors


def name_of_engine(engine: str) -> str:
    return engine.partition("==")[0]


def folder_of(engine: str, fingerprint: str) -> str:
    """The name of the folder of a finding; all versions of an engine share it."""
    name = name_of_engine(engine)
    digest = hashlib.sha256(f"{name}\n{fingerprint}".encode()).hexdigest()[:HASH_LEN]
    return f"{slug(f'{name}-{fingerprint}')}-{digest}"


def date_of(night: str) -> str:
    """The date of a night in UTC, as in 2026-11-25; its name begins with it."""
    return night[:10]


def positions(predecessors: Predecessors) -> dict[str, int]:
    """The position of each night in a topological order, the earliest first.

    A clock can be wrong, so the time in a night's name decides only where no list of predecessors does, or where the
    lists have a cycle, as in damaged files.  The order is made from its end: a night with a clock in the future comes
    right before the first night that lists it.
    """
    waiting = _num_successors(predecessors)
    left = sorted(predecessors)
    ready = [night for night in left if not waiting[night]]
    backwards: dict[str, None] = {}
    while left:
        night = ready.pop() if ready else left.pop()
        if night in backwards:
            continue
        backwards[night] = None
        for earlier in set(predecessors[night]) & predecessors.keys():
            waiting[earlier] -= 1
            if not waiting[earlier]:
                insort(ready, earlier)
    return {night: position for position, night in enumerate(reversed(backwards))}


def latest(predecessors: Predecessors) -> list[str]:
    """The nights that are a predecessor of no other night."""
    num_successors = _num_successors(predecessors)
    return [night for night in sorted(predecessors) if not num_successors[night]]


def _num_successors(predecessors: Predecessors) -> Counter[str]:
    """For each night the number of other nights that list it."""
    return Counter(earlier for night, before in predecessors.items() for earlier in {*before} - {night})
