"""A backtest: the findings of a search on a release, frozen, and then judged by the next release.

Each step writes a file before the next one begins, and is not made again if its file is there.  The findings of a
release are frozen, with the hashes of their logs, before anything of the next release is looked at.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from math import inf
from pathlib import Path
from typing import TypeVar

import msgspec

from swarden.harness.core.errors import UsageError
from swarden.harness.core.files import write_whole
from swarden.harness.core.oplog import OpLog
from swarden.harness.core.process import Process, ProcessDied
from swarden.harness.core.registry import target_of
from swarden.harness.core.replay import Verdict, run_log
from swarden.harness.search.campaign import Plan
from swarden.harness.search.profiles import PROFILES
from swarden.harness.search.result import Finding, Result
from swarden.harness.search.shrink import ShrinkBudget
from swarden.harness.search.verification import Verifier, names_in
from swarden.harness.search.workers import WorkerGroup

HANG_S = 60.0
SHRINK_CPU_S = 15.0  # of one finding; the budget of the searches does not include it
SEEDS = 3  # of the searches on the next release
MIN_RUNS_SHARE = 0.5  # of the runs on the older release: a search with fewer shows nothing


class Outcome(Enum):
    """What became of a finding.

    FOUND: its log passes with equal settings, and SEEDS searches no longer meet its fingerprint.  MOVED: its log passes
    for another reason, or fails in another way.  STILL: it fails as before.  NOT_JUDGED: it cannot be run there, or the
    searches there are too short.
    """

    FOUND = "found before its fix"
    MOVED = "moved"
    STILL = "still there"
    NOT_JUDGED = "not judged"


class Budget(msgspec.Struct, frozen=True):
    """The limits of one search: its CPU time, and the number of runs, with which it is deterministic."""

    seed: int
    cpu_seconds: float
    max_runs: int | None = None


class Searched(msgspec.Struct, frozen=True, kw_only=True):
    """One search: `fingerprints` are those of failures that are not of known bugs, `known` the known bugs it has met.

    `logs` has the unshrunk logs of the findings, by fingerprint; `faults` are exceptions of the adapter.
    """

    seed: int
    runs: int
    ops: int
    cpu_seconds: float
    fingerprints: list[str]
    known: list[str]
    faults: list[str]
    logs: dict[str, str] = {}


class Frozen(msgspec.Struct, frozen=True, kw_only=True):
    """A finding: its log in the folder of its release, and the hash of that file.  `bug` is the known bug, if any."""

    fingerprint: str
    bug: str
    log: str
    blake2b: str
    ops: int


class Release(msgspec.Struct, frozen=True, kw_only=True):
    """The findings of a release, one for each cause; `without_log` are known bugs that the search has met besides."""

    version: str
    digest: str
    search: Searched
    findings: list[Frozen]
    without_log: list[str]


class Judged(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a finding on the next release, with its reason."""

    finding: Frozen
    outcome: Outcome
    why: str = ""


class Pair(msgspec.Struct, frozen=True, kw_only=True):
    """Two successive releases; `is_same` if no driven module has changed, and then nothing is judged.

    The CPU time and the ops are those of the searches on both.
    """

    old: str
    new: str
    is_same: bool = False
    judged: list[Judged] = []
    runs: int = 0
    ops: int = 0
    cpu_seconds: float = 0.0

    def count(self, outcome: Outcome, *, is_known: bool | None = None) -> int:
        """The findings with this outcome; of those that the tree knew, or did not know, if that is asked for."""
        found = [one.finding for one in self.judged if one.outcome is outcome]
        return len([one for one in found if is_known is None or bool(one.bug) == is_known])


FileT = TypeVar("FileT", bound=msgspec.Struct)


@dataclass(frozen=True)
class Backtest:
    """The backtest of an engine, with its files in a folder; it drives one release at a time."""

    engine: str
    folder: Path
    budget: Budget

    def __post_init__(self) -> None:
        path = self.folder / "budget.json"
        if (before := _read(path, Budget)) not in (None, self.budget):
            raise UsageError(f"{path}: is of a backtest with {before}, not {self.budget}; name another folder")
        _write(path, self.budget)

    def pair(self, old: str, new: str) -> Pair | None:
        """The result for two releases, if it is there."""
        return _read(self._pair_path(old, new), Pair)

    def same(self, old: str, new: str) -> Pair:
        return _write(self._pair_path(old, new), Pair(old=old, new=new, is_same=True))

    def frozen(self, version: str, digest: str) -> Release:
        """Search a release, shrink what is found, and write the logs with their hashes.

        `digest` is the hash of the modules that the adapter drives.
        """
        path = self.folder / version / "frozen.json"
        if (before := _read(path, Release)) is not None:
            return before
        search = self._searched(version, self.budget.seed)
        known, findings = [*search.known], []
        seen: set[str] = set()
        with self._workers(version) as group:
            for finding in _shrunk(group, self._findings(version, search), path.parent):
                known += finding.cause.bugs
                if finding.path is not None and finding.is_confirmed and finding.fingerprint not in seen:
                    seen.update(finding.fingerprints)
                    findings.append(_frozen(finding.path, finding.fingerprint, ""))
            of_tree = {bug: self._of_known_bug(group, version, bug) for bug in dict.fromkeys(known)}
        findings += [one for one in of_tree.values() if one is not None]
        without_log = [bug for bug, one in of_tree.items() if one is None]
        return _write(
            path,
            Release(version=version, digest=digest, search=search, findings=findings, without_log=without_log),
        )

    def judged(self, old: Release, new: str) -> Pair:
        """Judge the findings of a release by the next one."""
        outcomes = {one.log: self._outcome_of_log(old.version, new, one) for one in old.findings}
        searches: list[Searched] = []
        if any(outcome is Outcome.FOUND for outcome, _ in outcomes.values()):
            searches = [self._searched(new, self.budget.seed + number) for number in range(SEEDS)]
        judged = []
        for finding in old.findings:
            outcome, why = outcomes[finding.log]
            if outcome is Outcome.FOUND:
                outcome, why = _outcome_of_searches(finding, old.search, searches)
            judged.append(Judged(finding=finding, outcome=outcome, why=why))
        all_searches = [old.search, *searches]
        pair = Pair(
            old=old.version,
            new=new,
            judged=judged,
            runs=sum(one.runs for one in all_searches),
            ops=sum(one.ops for one in all_searches),
            cpu_seconds=round(sum(one.cpu_seconds for one in all_searches), 1),
        )
        return _write(self._pair_path(old.version, new), pair)

    def _searched(self, version: str, seed: int) -> Searched:
        path = self.folder / version / f"search-{seed}.json"
        if (before := _read(path, Searched)) is not None:
            return before
        name, budget = f"{self.engine}=={version}", self.budget
        plan = Plan(name, PROFILES["default"], seed, inf, budget.max_runs, out=path.parent / f"seed-{seed}")
        path.parent.mkdir(parents=True, exist_ok=True)
        with self._workers(version) as group:
            for _ in group.running(plan):
                if group.result.cpu_seconds >= budget.cpu_seconds:
                    group.stop()
            result = group.result
        tallies = result.tallies
        searched = Searched(
            seed=seed,
            runs=tallies.runs,
            ops=sum(tallies.ops.values()),
            cpu_seconds=round(result.cpu_seconds, 1),
            fingerprints=sorted({*tallies.failures, *result.findings}),
            known=sorted({bug for names in tallies.known for bug in names_in(names)}),
            faults=list(result.target_faults.values()) + result.unexplained_deaths,
            logs={one.fingerprint: one.path.name for one in result.findings.values() if one.path is not None},
        )
        return _write(path, searched)

    def _findings(self, version: str, search: Searched) -> Mapping[str, Finding]:
        folder = self.folder / version / f"seed-{search.seed}"
        logs = {fingerprint: OpLog.load(folder / name) for fingerprint, name in sorted(search.logs.items())}
        name = f"{self.engine}=={version}"
        return {
            fingerprint: Finding(fingerprint, log.as_regression(fingerprint), 0.0, name)
            for fingerprint, log in logs.items()
        }

    def _of_known_bug(self, group: WorkerGroup, version: str, name: str) -> Frozen | None:
        """A known bug that the search has met, with the first of the tree's op-logs that fails with it here."""
        bug = target_of(f"{self.engine}=={version}").known_bugs()[name]
        for path in bug.oplogs:
            log = OpLog.load(path, engine=f"{self.engine}=={version}")
            replays = group.replay(log.as_regression(log.header.expected or bug.fingerprints[0]), 1)
            if replays.verdict is Verdict.FAILED:
                copy = self.folder / version / f"known-{path.name}"
                write_whole(copy, path.read_bytes())
                return _frozen(copy, replays.fingerprints[0], name)
        return None

    def _outcome_of_log(self, old: str, new: str, finding: Frozen) -> tuple[Outcome, str]:
        """FOUND if the log passes with equal settings."""
        path, name = self.folder / old / finding.log, f"{self.engine}=={new}"
        content = path.read_bytes()
        if _hash_of(content) != finding.blake2b:
            raise UsageError(f"{path}: was changed after it was frozen; remove {self.folder} and begin again")
        try:
            log = OpLog.parse(content, path, engine=name)
            targets = [target_of(f"{self.engine}=={version}") for version in (old, new)]
            before, after = ([one.encode(one.decode(config)) for config in log.header.configs] for one in targets)
            with self._workers(new) as group:
                replays = group.replay(log.as_regression(finding.fingerprint), 1)
        except UsageError as error:
            return Outcome.NOT_JUDGED, str(error)
        if replays.verdict is Verdict.FIXED:
            return (Outcome.FOUND, "") if before == after else (Outcome.MOVED, "its settings have other values there")
        fingerprints = ", ".join(replays.fingerprints)
        law = finding.fingerprint.partition("/")[0]
        is_same = replays.verdict is Verdict.FAILED or law in [one.partition("/")[0] for one in replays.fingerprints]
        known = "" if finding.bug else _known_cause(log)
        why = f"fails there with {fingerprints}" + (f", known as {known}" if known else "")
        return Outcome.STILL if is_same else Outcome.MOVED, why

    def _workers(self, version: str) -> WorkerGroup:
        return WorkerGroup(1, self.folder / version, hang_seconds=HANG_S)

    def _pair_path(self, old: str, new: str) -> Path:
        return self.folder / f"{old}--{new}.json"


def _shrunk(group: WorkerGroup, findings: Mapping[str, Finding], out: Path) -> Sequence[Finding]:
    group.result = Result(findings=dict(findings))
    reported = group.report_findings(out, ShrinkBudget(cpu_seconds=SHRINK_CPU_S))
    return [one for one in reported if one is not None]


def _outcome_of_searches(finding: Frozen, before: Searched, searches: Sequence[Searched]) -> tuple[Outcome, str]:
    """The outcome of a finding whose log passes: whether the same search still meets it."""
    for one in searches:
        if one.runs < MIN_RUNS_SHARE * before.runs:
            return Outcome.NOT_JUDGED, f"the search with seed {one.seed} made {one.runs} runs, before {before.runs}"
        if finding.fingerprint in one.fingerprints:
            return Outcome.MOVED, f"its log passes, but seed {one.seed} meets {finding.fingerprint}"
        if finding.bug in one.known:
            return Outcome.MOVED, f"its log passes, but seed {one.seed} meets {finding.bug}"
    return Outcome.FOUND, ""


def _frozen(path: Path, fingerprint: str, bug: str) -> Frozen:
    content = path.read_bytes()
    ops = len(OpLog.parse(content, path).ops)
    return Frozen(fingerprint=fingerprint, bug=bug, log=path.name, blake2b=_hash_of(content), ops=ops)


def _known_cause(log: OpLog) -> str:
    """The known bugs with whose fixes a log passes; "" if there are none, or if the trial kills its process."""
    try:
        with Process() as process:
            return str(process.call(_name_of_cause, log))
    except ProcessDied:
        return ""


def _name_of_cause(log: OpLog) -> str:
    failure = run_log(log).failure
    return "" if failure is None else Verifier(log.header.target, log.header.fixes).cause_of(failure, log).name


def _hash_of(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=16).hexdigest()


def pairs_in(path: Path) -> Sequence[Pair]:
    """The results in a file; raises UsageError if there are none."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=list[Pair])
    except (msgspec.DecodeError, OSError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise UsageError(f"{path}: {why}; run the backtest, and copy its backtest.json there") from error


def _read(path: Path, kind: type[FileT]) -> FileT | None:
    if not path.exists():
        return None
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except (msgspec.DecodeError, OSError) as error:
        raise UsageError(f"{path}: {error}; remove it, and run the backtest again") from error


def _write(path: Path, content: FileT) -> FileT:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, msgspec.json.format(msgspec.json.encode(content)))
    return content
