"""The records of a backtest and their files: the budget, the searches, the frozen findings and their outcomes."""

from collections.abc import Iterable, Sequence
from enum import Enum
from pathlib import Path

import msgspec

from swarden.harness.core.errors import UsageError
from swarden.harness.core.files import read_whole
from swarden.harness.core.known_bug import Version
from swarden.harness.core.limits import MAX_ARCHIVE_BYTES
from swarden.harness.core.validation import NOT_DECODED
from swarden.harness.search.archive_files import LogName
from swarden.harness.search.judgement import Judgement, code_of_failure, judged
from swarden.harness.search.result import Finding


class Outcome(Enum):
    """The result for a finding on the next release.

    It is not judged if its log cannot be run there, if the searches there are too short, or if the adapter has ended
    some of their runs, as it did not before.
    """

    FOUND = "found before its fix"  # its log passes with equal settings, and SEEDS searches do not meet its fingerprint
    MOVED = "moved"  # its log passes for another reason, or fails in another way
    STILL = "still there"  # it fails as before
    NOT_JUDGED = "not judged"


class Budget(msgspec.Struct, frozen=True, kw_only=True):
    """The limit of one search: its CPU time, or the number of runs, with which it is deterministic."""

    seed: int
    cpu_seconds: float | None
    max_runs: int | None
    adapter: str  # the hash of the code that drives the releases and judges them


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """The cost of a part of the backtest, in all processes; the search of a release is a part of two pairs."""

    part: str
    cpu_seconds: float
    runs: int = 0
    ops: int = 0


class Searched(msgspec.Struct, frozen=True, kw_only=True):
    """One search."""

    seed: int
    cost: Cost
    fingerprints: list[str]  # of failures that are not of known bugs
    known: list[str]  # bugs that it has met
    faults: dict[str, str]  # exceptions of the adapter
    findings: list[Finding]  # not shrunk to their end


class Frozen(msgspec.Struct, frozen=True, kw_only=True):
    """A finding: its log in the folder of its release, and the hash of that file; then its outcome on the next one.

    `namesakes` are known bugs with its fingerprint that have no fix for this release.  `bug` is the known bug whose fix
    makes the log pass, there or on the next release; or a namesake whose own op-log fails on the older release and
    passes on the newer one, too.  `why` is the reason of the outcome.
    """

    fingerprint: str
    log: LogName
    blake2b: str
    ops: int
    bug: str = ""
    namesakes: list[str] = []
    outcome: Outcome | None = None
    why: str = ""


class Release(msgspec.Struct, frozen=True, kw_only=True):
    """The findings of a release, one per cause; `cost` is that of boots, shrinks and replays, not of the search."""

    version: Version
    digest: str
    search: Searched
    findings: list[Frozen]
    cost: Cost


class Pair(msgspec.Struct, frozen=True, kw_only=True):
    """Two successive releases."""

    old: str
    new: str
    is_same: bool = False  # no driven module has changed, so nothing is judged
    judged: list[Frozen] = []
    costs: list[Cost] = []
    faults: list[str] = []  # of the adapter in the searches, by release and fingerprint

    def count(self, outcome: Outcome, *, is_known: bool | None = None) -> int:
        """The number of findings with this outcome; `is_known` selects known bugs, or all others."""
        judged = [finding for finding in self.judged if finding.outcome is outcome]
        return len([finding for finding in judged if is_known is None or bool(finding.bug) == is_known])


def judgement_of(pairs: Sequence[Pair]) -> Judgement:
    """The judgement of the newest release: only findings that are still there count, as in a campaign."""
    newest = next((pair.judged for pair in reversed(pairs) if not pair.is_same), [])
    still = [finding for finding in newest if finding.outcome is Outcome.STILL]
    codes = [code_of_failure(finding.fingerprint) for finding in still if not finding.bug]
    is_judged = all(finding.outcome is not Outcome.NOT_JUDGED for finding in newest)
    return judged(codes, has_known=bool(still), is_judged=is_judged)


def cost_of(pairs: Iterable[Pair]) -> Cost:
    """The cost of some pairs; a search that two of them have in common counts once."""
    costs = {cost.part: cost for pair in pairs for cost in pair.costs}.values()
    return Cost(
        part="all",
        cpu_seconds=sum(cost.cpu_seconds for cost in costs),
        runs=sum(cost.runs for cost in costs),
        ops=sum(cost.ops for cost in costs),
    )


def pairs_in(path: Path) -> Sequence[Pair]:
    """The results in a file; raises UsageError if there are none."""
    try:
        return msgspec.json.decode(read_whole(path, most=MAX_ARCHIVE_BYTES), type=list[Pair])
    except (*NOT_DECODED, OSError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise UsageError(f"{path}: {why}; run the backtest, and copy its backtest.json there") from error
