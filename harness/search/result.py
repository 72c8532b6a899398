"""The result of a campaign: its counts, its findings, and the runs that it keeps."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import msgspec

from swarden.harness.core.admission import parse_log
from swarden.harness.core.counters import NO_COVERAGE, Coverage
from swarden.harness.core.oplog import OpLog
from swarden.harness.core.registry import target_for
from swarden.harness.core.replay import Verdict
from swarden.harness.report.story import StoryLine
from swarden.harness.search.corpus import RareRun
from swarden.harness.search.keys import NO_KEY, Key, is_of, kind_of
from swarden.harness.search.shrink.shrink import measure
from swarden.harness.search.verification import UNKNOWN, Cause

MOST_KINDS = 4  # findings with one fingerprint; then the newest replaces the one before it
Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]  # of a file, too: so that a rate of it is a number


class Finding(msgspec.Struct, frozen=True, omit_defaults=True):
    """The failures of an engine with a fingerprint, and the smallest of their logs.  Encoded, it is its own file.

    `found_cpu_seconds` is the CPU time of the worker until the first failure; for a death, the wall-clock time since
    the campaign began. `died` describes the death of the process. `story` is that of the failure in the log, made when
    the log is shrunk, or when it fails if its target is not repeatable. `passed` are the candidates of the shrink that
    did not fail (shrink.py). `path` is the file of the log, None if it could not be written. `engine_steps` and
    `shrink_cpu_seconds` are those of the shrunk log; None if it could not be shrunk. `verdict` is that of another run
    of the log, None if there was none: `failures` of `runs` failed, and `why` is the reason for FLAKY. `recorded` is
    the op-log that the strict check of a server has written, `inner` the finding made from it. `cause` has the known
    bugs with this fingerprint, which explain the finding if the shrunk log passes with their fixes. `on_base` is how
    the log of a finding in a checkout ends on the nearest release. `key` is the second key of the unshrunk failure,
    `statements` that of the shrunk one; `suffix` makes the name of a further finding with the same fingerprint and
    another key. `together` are the fingerprints of the failure in the log.
    """

    fingerprint: str
    log: OpLog
    found_cpu_seconds: float
    engine: str = ""
    died: str = ""
    story: Sequence[StoryLine] = msgspec.field(default=(), name="lines")
    passed: Sequence[str] = ()
    path: Path | None = None
    engine_steps: int | None = None
    shrink_cpu_seconds: float = 0.0
    verdict: Verdict | None = None
    failures: int = 0
    runs: int = 0
    why: str = ""
    recorded: str = ""
    inner: "Finding | None" = None
    cause: Cause = UNKNOWN
    on_base: str = ""
    key: Key = NO_KEY
    statements: Key = NO_KEY
    suffix: str = ""
    together: Sequence[str] = ()

    def changed(self, **fields: Any) -> "Finding":
        """The finding with other values of some fields."""
        return msgspec.structs.replace(self, **fields)

    def repeated(
        self, verdict: Verdict, failures: int, runs: int, why: str = "", *, names: Sequence[str] = ()
    ) -> "Finding":
        """The finding with the result of running its log again, which failed with these names."""
        return self.changed(verdict=verdict, failures=failures, runs=runs, why=why, together=names)

    def admitted(self, path: Path, engine: str) -> "Finding":
        """A finding that was read from a file, on an engine of this build; raises OpLogError if it cannot run the log.

        Only the same build continues a shrink: a candidate that passed in another build may fail in this one.
        """
        log = parse_log(self.log.to_bytes(), path, engine=engine)
        is_same = log.header.source_hash == target_for(log.header).source_hash()
        return self.changed(log=log, engine=engine, path=None, passed=self.passed if is_same else ())

    def __str__(self) -> str:
        return f"{self.name} on {self.engine}"

    @property
    def name(self) -> str:
        return f"{self.fingerprint}{self.suffix}"

    @property
    def kind(self) -> str:
        """The name under which its failures are counted: that of the known bugs, if there are some."""
        return self.cause.name or self.name

    @property
    def is_confirmed(self) -> bool:
        """Whether the log fails in the same way each time that it is run again."""
        return self.verdict is Verdict.FAILED

    @property
    def why_flaky(self) -> str:
        """The reason, if the log does not fail again, or not always; else ""."""
        return self.why if self.verdict is Verdict.FLAKY else ""

    @property
    def fingerprints(self) -> list[str]:
        """The fingerprints of the failure in the log; that of the finding comes first."""
        return list(dict.fromkeys((self.fingerprint, *self.together)))

    @property
    def laws(self) -> list[str]:
        """The invariants and errors of the finding."""
        return list(dict.fromkeys(name.split("/", maxsplit=1)[0] for name in self.fingerprints))

    @property
    def invariant(self) -> str:
        """The first invariant or error of the finding."""
        return self.laws[0]

    @property
    def ops(self) -> int:
        return len(self.log.ops)

    def figures(self) -> dict[str, Any]:
        """The figures for scripts."""
        return {
            "fingerprint": self.fingerprint,
            "name": self.name,
            "statements": sorted(self.statements or self.key),
            "invariant": self.invariant,
            "ops": self.ops,
            "engine_steps": self.engine_steps,
            "found_cpu_seconds": round(self.found_cpu_seconds, 3),
            "shrink_cpu_seconds": round(self.shrink_cpu_seconds, 3),
            "path": str(self.path) if self.path else None,
        }


@dataclass
class Tallies:
    """The counts over all runs of a campaign.

    Runs of the corpus add nothing to `runs`, `ops`, `noops`, `probes` and `machine_runs`, which judge random traffic;
    runs of a short list of ops add to `runs` alone of these. `rechecked` counts the runs that were repeated to detect
    nondeterminism, `limited_runs` those that reached the limit of their work. `failures` counts the failed runs by
    fingerprint, but those of known bugs, which `known` counts by bug; `kinds` those that have a second key, by both.
    `probes` counts by probe the runs that reached it, `evaluated` and `not_applicable` by invariant the transitions,
    `fired` by fault how often it fired.
    """

    runs: Count = 0
    steps: Count = 0
    failed_runs: Count = 0
    rechecked: Count = 0
    limited_runs: Count = 0
    ops: Counter[str] = field(default_factory=Counter)
    noops: Counter[str] = field(default_factory=Counter)
    evaluated: Counter[str] = field(default_factory=Counter)
    not_applicable: Counter[str] = field(default_factory=Counter)
    probes: Counter[str] = field(default_factory=Counter)
    fired: Counter[str] = field(default_factory=Counter)
    machine_runs: Counter[str] = field(default_factory=Counter)
    failures: Counter[str] = field(default_factory=Counter)
    known: Counter[str] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)

    def add(self, other: "Tallies") -> None:
        for name, count in vars(other).items():
            if isinstance(count, Counter):
                getattr(self, name).update(count)
            else:
                setattr(self, name, getattr(self, name) + count)

    def count(self, finding: Finding) -> None:
        """Count a failed run: of known bugs, or else of a fingerprint and a key."""
        if finding.cause.bugs:
            self.known[finding.kind] += 1
        else:
            self.failures[finding.fingerprint] += 1
            self.kinds.update([kind_of(finding.fingerprint, finding.key)] if finding.key else ())

    def runs_of(self, finding: Finding, among: Sequence[Finding] = ()) -> int:
        """The failed runs that count for a finding among others."""
        is_alone = [other.fingerprint for other in among].count(finding.fingerprint) < 2
        kind = finding.fingerprint if is_alone else kind_of(finding.fingerprint, finding.key)
        return self.kinds[kind] or self.failures[finding.fingerprint]

    def attribute(self, fingerprint: str, bugs: str) -> None:
        """Count one failed run with this fingerprint for known bugs instead; the other runs stay as they are."""
        runs = min(self.failures[fingerprint], 1)
        self.known[bugs] += runs
        self.failures[fingerprint] -= runs
        if not self.failures[fingerprint]:
            del self.failures[fingerprint]


class Reached(NamedTuple):
    """The kinds of events and moves that healthy runs have had (Features), and the runs since one had a new kind."""

    kinds: frozenset[int] = frozenset()
    runs_since_new: int = 0


NOTHING_REACHED = Reached()


@dataclass
class Result:
    """The result of one run, or of all runs of a worker or a campaign; `diverged` describes nondeterministic runs.

    `known` has the first failure of known bugs by their names.  `rare` are healthy runs for the corpus, `replayed` the
    names of its logs that passed.  `target_faults` are the exceptions of the target itself, by fingerprint; the runs
    that they ended count for nothing else.  `refused` counts by reason the drawn configurations that the engine
    refused.  `coverage` is that of the change that is followed.
    """

    tallies: Tallies = field(default_factory=Tallies)
    findings: dict[str, Finding] = field(default_factory=dict)
    known: dict[str, Finding] = field(default_factory=dict)
    diverged: list[str] = field(default_factory=list)
    unexplained_deaths: list[str] = field(default_factory=list)  # deaths that left no log of a run
    boots: list[float] = field(default_factory=list)  # the seconds in which each worker process has booted the engine
    replaced: list[str] = field(default_factory=list)  # the deaths of worker processes
    seconds: float = 0.0
    cpu_seconds: float = 0.0  # of the workers, in finished runs
    rare: list[RareRun] = field(default_factory=list)
    replayed: set[str] = field(default_factory=set)
    target_faults: dict[str, str] = field(default_factory=dict)
    reached: Reached = NOTHING_REACHED
    refused: Counter[str] = field(default_factory=Counter)
    coverage: Coverage = NO_COVERAGE
    gone: str = ""  # why no further run can be made with the engine
    run: tuple[int, int] | None = None  # the seed and the ordinal, if this is the result of one run

    @property
    def is_refused(self) -> bool:
        """Whether all draws were refused."""
        return bool(self.refused) and not self.tallies.runs and not self.target_faults

    def add(self, other: "Result") -> None:
        """Add up the counts; two findings with one fingerprint and one key become one."""
        self.tallies.add(other.tallies)
        is_new = not other.reached.kinds <= self.reached.kinds
        runs_since_new = 0 if is_new else self.reached.runs_since_new + other.tallies.runs
        self.reached = Reached(self.reached.kinds | other.reached.kinds, runs_since_new)
        self.cpu_seconds += other.cpu_seconds
        self.boots += other.boots
        self.replaced += other.replaced
        self.diverged += other.diverged
        self.unexplained_deaths += other.unexplained_deaths
        self.rare += other.rare
        self.replayed |= other.replayed
        self.target_faults = other.target_faults | self.target_faults
        self.refused.update(other.refused)
        self.coverage |= other.coverage
        self.known = other.known | self.known
        self.gone = self.gone or other.gone
        for finding in other.findings.values():
            namesakes = [old for old in self.findings.values() if old.fingerprint == finding.fingerprint]
            same = next((old for old in namesakes if is_of(finding.key, old.key)), None)
            both = [finding] if same is None else [same, finding]
            if same is None and len(namesakes) == MOST_KINDS:
                del self.findings[namesakes[-1].name]
            own = finding.suffix or (kind_of("", finding.key) if namesakes else "")
            suffix = same.suffix if same is not None else own
            soonest = min(finding.found_cpu_seconds for finding in both)
            smallest = min(both, key=lambda finding: measure(finding.log))
            merged = smallest.changed(found_cpu_seconds=soonest, suffix=suffix)
            self.findings[merged.name] = merged
