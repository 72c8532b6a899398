"""A backtest: the findings of a search on a release, frozen, and then judged by the next release.

Each step writes a file before the next one begins, and is not made again if its file is there.  The findings of a
release are frozen, with the hashes of their logs, before anything of the next release is looked at.
"""

import hashlib
import resource
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, product
from math import inf
from pathlib import Path
from time import process_time

from msgspec import structs

from swarden.harness.core.admission import parse_log
from swarden.harness.core.errors import UsageError
from swarden.harness.core.files import read_whole, write_whole
from swarden.harness.core.known_bug import KnownBug
from swarden.harness.core.limits import MAX_OPLOG_BYTES
from swarden.harness.core.registry import target_of
from swarden.harness.core.replay import Verdict
from swarden.harness.core.sources import hash_of
from swarden.harness.releases.backtest_results import Budget, Cost, Frozen, Outcome, Pair, Release, Searched
from swarden.harness.search.archive_files import RecordT, read, save
from swarden.harness.search.campaign import Plan
from swarden.harness.search.judge import Rule, judge
from swarden.harness.search.result import Finding
from swarden.harness.search.shrink.shrink import ShrinkBudget
from swarden.harness.search.tasks import Block
from swarden.harness.search.traffic.profiles import PROFILES
from swarden.harness.search.verification import bugs_in
from swarden.harness.search.workers import WorkerGroup

HANG_S = 60.0
SHRINK_CPU_S, SHRINKS_CPU_S = 15.0, 90.0  # of one finding, and of all findings of a release
SHRINK_EXECUTIONS = 300  # of one finding, where a search ends after a number of runs
BEFORE_RUNS = ("target/build/", "target/decode/")  # the fingerprints of faults
MOST_DEATHS = 5  # of processes in a search: each boots the release again
SEEDS = 3  # of the searches on the next release
MIN_RUNS_SHARE = 0.5  # of the runs on the older release: a search with fewer shows nothing


@dataclass(frozen=True)
class Backtest:
    """The backtest of an engine, with its files in a folder; it drives one release at a time."""

    engine: str
    folder: Path
    budget: Budget

    def __post_init__(self) -> None:
        path = self.folder / "budget.json"
        if (before := self._read(path, Budget)) not in (None, self.budget):
            raise UsageError(f"{path}: is of a backtest with {before}, not {self.budget}; name another folder")
        self._save(path, self.budget)

    def _read(self, path: Path, kind: type[RecordT]) -> RecordT | None:
        return read(path, kind, self.folder.parent) if path.exists() else None

    def _save(self, path: Path, record: RecordT) -> RecordT:
        save(path, record, self.folder.parent)
        return record

    def _known_bug(self, version: str, name: str) -> KnownBug:
        """A known bug that a file names; raises UsageError if there is none."""
        bugs = target_of(f"{self.engine}=={version}").known_bugs()
        if name not in bugs:
            raise UsageError(f"{self.folder}: {name!r} is no known bug of {self.engine}; remove the folder")
        return bugs[name]

    def pair(self, old: str, new: str) -> Pair | None:
        """The result for two releases, if it is there."""
        return self._read(self._pair_path(old, new), Pair)

    def same(self, old: str, new: str) -> Pair:
        return self._save(self._pair_path(old, new), Pair(old=old, new=new, is_same=True))

    def frozen(self, version: str, digest: str) -> Release:
        """Search a release, shrink, and write the logs with their hashes; `digest` is that of the driven modules."""
        path = self.folder / version / "frozen.json"
        if (before := self._read(path, Release)) is not None:
            return before
        began = _cpu_seconds()
        was_searched = self._search_path(version, self.budget.seed).exists()
        with self._workers(version) as group:
            search = self._searched(group, version, self.budget.seed)
            bugs, findings = [*search.known], []
            seen: set[str] = set()
            for finding in self._shrunk(group, version, search):
                bugs += finding.cause.bugs
                if finding.path is not None and finding.is_confirmed and finding.fingerprint not in seen:
                    seen.update(finding.fingerprints)
                    findings.append(_frozen(finding.path, finding.fingerprint, "", sorted(finding.cause.namesakes)))
            of_tree = [self._of_known_bug(group, version, bug) for bug in dict.fromkeys(bugs)]
        findings += [finding for finding in of_tree if finding is not None]
        cpu_seconds = _cpu_seconds() - began - (0 if was_searched else search.cost.cpu_seconds)
        release = Release(
            version=version,
            digest=digest,
            search=search,
            findings=findings,
            cost=Cost(part=f"{version}: shrinks and replays", cpu_seconds=round(cpu_seconds, 1)),
        )
        return self._save(path, release)

    def judged(self, old: Release, new: str, older_defaults: Block | None) -> Pair:
        """Judge the findings of a release by the next one, in one process.

        `older_defaults` plants the defaults of the older release in the newer one, if it has changed some.
        """
        began = _cpu_seconds()
        seeds = [self.budget.seed + number for number in range(SEEDS)]
        were_searched = {seed for seed in seeds if self._search_path(new, seed).exists()}
        searches: list[Searched] = []
        bugs: dict[str, str] = {}  # by log
        with self._workers(new) as group:
            outcome_of = partial(self._outcome_of_log, group, old.version, new, bugs=bugs)
            outcomes = {finding.log: outcome_of(finding) for finding in old.findings}
            passing = [finding for finding in old.findings if outcomes[finding.log][0] is Outcome.FOUND]
            for finding, block in product(passing, filter(None, [older_defaults])):
                log, rule = self.folder / old.version / finding.log, Rule([finding.fingerprint], block=block)
                if judge(group, log, f"{self.engine}=={new}", rule).verdict is Verdict.FAILED:
                    outcomes[finding.log] = Outcome.MOVED, f"its log fails with the older defaults: {older_defaults}"
            if any(outcome is Outcome.FOUND for outcome, _ in outcomes.values()):
                searches = [self._searched(group, new, seed) for seed in seeds]
        for finding in old.findings:
            if outcomes[finding.log][0] is Outcome.FOUND:
                outcomes[finding.log] = self._outcome_of_searches(new, finding, old.search, searches)
        passing = [finding for finding in old.findings if outcomes[finding.log][0] is Outcome.FOUND]
        bugs |= self._known_bugs(old.version, new, passing)
        inner = sum(search.cost.cpu_seconds for search in searches if search.seed not in were_searched)
        replays = Cost(part=f"{new}: replays of {old.version}", cpu_seconds=round(_cpu_seconds() - began - inner, 1))
        pair = Pair(
            old=old.version,
            new=new,
            judged=[
                structs.replace(finding, outcome=outcome, why=why, bug=bugs.get(finding.log, finding.bug))
                for finding, (outcome, why) in zip(old.findings, outcomes.values(), strict=True)
            ],
            costs=[old.search.cost, old.cost, replays, *(search.cost for search in searches)],
            faults=[
                *(f"{old.version}: {name}" for name in sorted(old.search.faults)),
                *(f"{new}: {name}" for name in sorted({*chain.from_iterable(search.faults for search in searches)})),
            ],
        )
        return self._save(self._pair_path(old.version, new), pair)

    def _search_path(self, version: str, seed: int) -> Path:
        return self.folder / version / f"search-{seed}.json"

    def _searched(self, group: WorkerGroup, version: str, seed: int) -> Searched:
        path = self._search_path(version, seed)
        if (before := self._read(path, Searched)) is not None:
            return before
        name, budget = f"{self.engine}=={version}", self.budget
        plan = Plan(
            engine=name,
            profile=PROFILES["default"],
            seed=seed,
            max_runs=budget.max_runs,
            out=path.parent / f"seed-{seed}",
        )
        cpu_seconds = inf if budget.cpu_seconds is None else budget.cpu_seconds
        result = group.run(
            plan, lambda result: result.cpu_seconds >= cpu_seconds or len(result.replaced) >= MOST_DEATHS
        )
        tallies = result.tallies
        deaths = {f"death {number}": text for number, text in enumerate(result.unexplained_deaths)}
        searched = Searched(
            seed=seed,
            cost=Cost(
                part=f"{version}: search {seed}",
                cpu_seconds=round(result.cpu_seconds, 1),
                runs=tallies.runs,
                ops=sum(tallies.ops.values()),
            ),
            fingerprints=sorted({*tallies.failures, *result.findings}),
            known=sorted({bug for name in tallies.known for bug in bugs_in(name)}),
            faults=result.target_faults | deaths,
            findings=[finding.changed(path=None) for finding in result.findings.values()],
        )
        return self._save(path, searched)

    def _shrunk(self, group: WorkerGroup, version: str, search: Searched) -> Sequence[Finding]:
        """The reports of the findings of a search, whose shrinks go on from where the search has left them."""
        path, name = self._search_path(version, search.seed), f"{self.engine}=={version}"
        one_each = {finding.fingerprint: finding.admitted(path, name) for finding in search.findings}
        findings = [one_each[fingerprint] for fingerprint in sorted(one_each)]
        budget = ShrinkBudget(cpu_seconds=min(SHRINK_CPU_S, SHRINKS_CPU_S / max(1, len(findings))))
        if self.budget.max_runs is not None:
            budget = ShrinkBudget(executions=SHRINK_EXECUTIONS, cpu_seconds=inf)
        return group.report(findings, path.parent, budget)

    def _of_known_bug(self, group: WorkerGroup, version: str, name: str) -> Frozen | None:
        """A known bug that the search has met, with the first of its op-logs that fails on this release, if any."""
        bug = self._known_bug(version, name)
        for path in bug.oplogs:
            replays = judge(group, path, f"{self.engine}=={version}")
            if replays.verdict is Verdict.FAILED:
                copy = self.folder / version / f"known-{path.name}"
                write_whole(copy, path.read_bytes(), inside=self.folder.parent)
                return _frozen(copy, replays.fingerprints[0], name)
        return None

    def _outcome_of_log(
        self, group: WorkerGroup, old: str, new: str, finding: Frozen, bugs: dict[str, str]
    ) -> tuple[Outcome, str]:
        """The outcome by the log of a finding, with its reason: FOUND if the log passes with equal settings.

        The known bug of a log that fails there is added to `bugs`.
        """
        path, name = self.folder / old / finding.log, f"{self.engine}=={new}"
        content = read_whole(path, most=MAX_OPLOG_BYTES, inside=self.folder.parent)
        if _hash_of(content) != finding.blake2b:
            raise UsageError(f"{path}: was changed after it was frozen; remove {self.folder} and begin again")
        try:
            log = parse_log(content, path, engine=name)
            targets = [target_of(f"{self.engine}=={version}") for version in (old, new)]
            configs = log.header.configs
            before, after = ([target.encode(target.decode(config)) for config in configs] for target in targets)
        except UsageError as error:
            return Outcome.NOT_JUDGED, str(error)
        replays = judge(group, log, name, Rule([finding.fingerprint], finds_cures=not finding.bug))
        if replays.verdict is Verdict.ERROR:
            return Outcome.NOT_JUDGED, replays.diverged
        if replays.verdict is Verdict.FIXED:
            return (Outcome.FOUND, "") if before == after else (Outcome.MOVED, "its settings have other values there")
        bugs[finding.log] = replays.known or finding.bug
        explained = f", known as {replays.known}" if replays.known else ""
        why = f"fails there with {', '.join(replays.fingerprints)}{explained}"
        return Outcome.STILL if replays.verdict is Verdict.FAILED else Outcome.MOVED, why

    def _outcome_of_searches(
        self, new: str, finding: Frozen, before: Searched, searches: Sequence[Searched]
    ) -> tuple[Outcome, str]:
        """The outcome of a finding whose log passes: do the same searches still meet it, also as a known bug?"""
        for search in searches:
            seed = f"the search with seed {search.seed}"
            if search.cost.runs < MIN_RUNS_SHARE * before.cost.runs:
                return Outcome.NOT_JUDGED, f"{seed} made {search.cost.runs} runs, before {before.cost.runs}"
            for name, text in search.faults.items():  # a fault of the adapter ends a run early, which may miss failures
                if name not in before.faults and not name.startswith(BEFORE_RUNS):
                    return Outcome.NOT_JUDGED, f"{seed}: {text}"
            if finding.fingerprint in search.fingerprints:
                return Outcome.MOVED, f"its log passes, but {seed} meets {finding.fingerprint}"
            known = {name: self._known_bug(new, name).fingerprints for name in search.known}
            if same := [name for name in known if name == finding.bug or finding.fingerprint in known[name]]:
                return Outcome.MOVED, f"its log passes, but {seed} meets {same[0]}"
        return Outcome.FOUND, ""

    def _known_bugs(self, old: str, new: str, findings: Sequence[Frozen]) -> Mapping[str, str]:
        """By log, the known bug of a finding, else its first namesake whose op-log passes on the newer release, too."""
        pairs = [(finding, name) for finding in findings for name in finding.namesakes]
        logs = [(finding, name, path) for finding, name in pairs for path in self._known_bug(old, name).oplogs]
        for version, verdict in ((old, Verdict.FAILED), (new, Verdict.FIXED)) if logs else ():
            name = f"{self.engine}=={version}"
            with self._workers(version) as group:
                ends = [judge(group, path, name, Rule([finding.fingerprint])).verdict for finding, _, path in logs]
            logs = [log for log, end in zip(logs, ends, strict=True) if end is verdict]
        own = {finding.log: finding.bug for finding in findings if finding.bug}
        return {finding.log: bug for finding, bug, _ in reversed(logs)} | own

    def _workers(self, version: str) -> WorkerGroup:
        (self.folder / version).mkdir(parents=True, exist_ok=True)
        return WorkerGroup(1, self.folder / version, hang_seconds=HANG_S)

    def _pair_path(self, old: str, new: str) -> Path:
        return self.folder / f"{old}--{new}.json"


def _frozen(path: Path, fingerprint: str, bug: str, namesakes: Sequence[str] = ()) -> Frozen:
    content = path.read_bytes()
    return Frozen(
        fingerprint=fingerprint,
        bug=bug,
        log=path.name,
        blake2b=_hash_of(content),
        ops=len(parse_log(content, path).ops),
        namesakes=[*namesakes],
    )


def adapter_hash(engine: str) -> str:
    """The hash of the code that drives the releases of an engine and judges them."""
    names = {kind.__module__ for kind in type(target_of(engine)).__mro__} - sys.stdlib_module_names
    modules = [Path(str(sys.modules[name].__file__)) for name in names]
    harness = Path(__file__).parents[1]
    code = [path for module in modules for path in module.parent.glob("*.py")]
    return hash_of(sorted({*code, harness / "core", harness / "kit", harness.parent / "invariants"}))


def _cpu_seconds() -> float:
    """The CPU time of this process and of its processes that have ended."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return process_time() + ended.ru_utime + ended.ru_stime


def _hash_of(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=16).hexdigest()
