"""Which failures are of known bugs: those whose log passes with the fixes of bugs that have their fingerprint.

A fingerprint alone proves nothing: many bugs end in `work_makes_progress/engine/stuck`.
"""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from swarden.harness.core.driver import Failure
from swarden.harness.core.errors import UsageError
from swarden.harness.core.known_bug import KnownBug
from swarden.harness.core.oplog import OpLog
from swarden.harness.core.replay import run_log
from swarden.harness.core.target import Target

MOST_FIXES = 8  # of bugs with one fingerprint that are tried: each costs a replay of an unshrunk log
AND = " + "  # between the names of bugs that are known together
HAS_NO_FIX = "has no fix for this release"
DOES_NOT_HELP = "its fix does not help"


@dataclass(frozen=True)
class Cause:
    """What is known of a failure.

    `bugs` are the known bugs with whose fixes its log passes, and with no fewer.  If there are none, `namesakes` are
    the known bugs that have its fingerprint, each with the reason for which it is not verified, and `behind` the fixes
    with which the log fails in the same way.
    """

    bugs: tuple[str, ...] = ()
    namesakes: Mapping[str, str] = field(default_factory=dict)
    behind: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The bugs as a key of counts; "" if the failure is not known."""
        return AND.join(self.bugs)


UNKNOWN = Cause()


class Verifier:
    """Tries the fixes of known bugs on the logs of failures; `planted` fixes are in the engine already.

    `heartbeat` is called once an engine step.
    """

    def __init__(self, target: Target, planted: Collection[str], heartbeat: Callable[[], None] = lambda: None) -> None:
        self._version, self._beat = target.version(), heartbeat
        bugs = target.known_bugs()
        self._bugs = {name: bug for name, bug in bugs.items() if name not in planted and bug.has(self._version)}
        self._times: Counter[str] = Counter()

    def cause_of(self, failure: Failure, log: OpLog) -> Cause:
        """The cause of the failure of a log: at first the bug that was the cause most often is tried."""
        named = self._namesakes(failure)
        trial = _Trial(log, failure, self._beat)
        if not (fixes := self._fixed(named)):
            return Cause(namesakes=dict.fromkeys(named, HAS_NO_FIX)) if named else UNKNOWN
        if trial.passes(fixes[:1]):
            return self._known(fixes[:1])
        together, left = fixes, trial.failure_with(fixes)
        while left is not None and (more := [one for one in self._fixed(self._namesakes(left)) if one not in together]):
            together = [*together, *more]
            left = trial.failure_with(together)
        if left is None:
            return self._known(_fewest(together, trial))
        why = {one: trial.errors.get(one, DOES_NOT_HELP) if one in fixes else HAS_NO_FIX for one in named}
        is_same = not trial.errors and failure.fingerprint in left.fingerprints
        return Cause(namesakes=why, behind=tuple(together) if is_same else ())

    def _namesakes(self, failure: Failure) -> list[str]:
        """The bugs with a fingerprint of the failure: those with its first one come first."""
        names = [name for name, bug in self._bugs.items() if set(failure.fingerprints) & {*bug.fingerprints}]
        return sorted(names, key=lambda name: failure.fingerprint not in self._bugs[name].fingerprints)

    def _fixed(self, names: Sequence[str]) -> list[str]:
        """Those of these bugs that have a fix, the most frequent ones first."""
        fixed = [name for name in names if self._bugs[name].patch_for(self._version) is not None]
        return sorted(fixed, key=lambda name: -self._times[name])[:MOST_FIXES]

    def _known(self, bugs: Collection[str]) -> Cause:
        self._times.update(bugs)
        return Cause(tuple(sorted(bugs)))


class _Trial:
    """Replays of one log with fixes; `errors` are, by bug, those of fixes that do not fit the code."""

    def __init__(self, log: OpLog, failure: Failure, heartbeat: Callable[[], None]) -> None:
        self._log, self._failure, self._beat = log, failure, heartbeat
        self._tried: dict[frozenset[str], Failure | None] = {}
        self.errors: dict[str, str] = {}

    def passes(self, fixes: Sequence[str]) -> bool:
        return self.failure_with(fixes) is None

    def failure_with(self, fixes: Sequence[str]) -> Failure | None:
        """The failure of the log with these fixes; its own if they do not fit, or the run cannot be made with them."""
        key = frozenset(fixes)
        if key not in self._tried:
            try:
                self._tried[key] = run_log(self._log.with_fixes(fixes), observe=lambda *_: self._beat()).failure
            except UsageError as error:
                self._tried[key] = self._failure
                self.errors |= dict.fromkeys(fixes, str(error))
        return self._tried[key]


def _fewest(fixes: Sequence[str], trial: _Trial) -> list[str]:
    """Of fixes with which a log passes together, one with which it passes, or those of which none can be left out."""
    alone = next((one for one in fixes if trial.passes([one])), None)
    if alone is not None:
        return [alone]
    needed = list(fixes)
    for one in fixes:
        rest = [other for other in needed if other != one]
        if trial.passes(rest):
            needed = rest
    return needed


def known_lines(known: Counter[str], target: Target) -> list[str]:
    """A line for each known bug, or each group of bugs that are known together, the most frequent first."""
    return [f"known: {names}{times(runs)} ({upstream_of(names, target)})" for names, runs in known.most_common()]


def times(runs: int) -> str:
    """How many runs failed; a failure of the corpus or of a dead worker can have none."""
    return f" \N{MULTIPLICATION SIGN}{runs}" if runs else ""


def upstream_of(names: str, target: Target) -> str:
    """Where known bugs are described: the issue or pull request to comment on, else the first one that is related."""
    bugs = [target.known_bugs()[name] for name in names.split(AND)]
    return ", ".join(dict.fromkeys(_described(bug, target.name) for bug in bugs))


def _described(bug: KnownBug, engine: str) -> str:
    if (place := bug.verdict.removeprefix("comment on ")) != bug.verdict:
        return f"{engine} {place}"
    related = next(iter(bug.upstream), None)
    if related is None:
        return "no upstream issue found"
    return f"{related.repository or engine} {related.kind} {related.number}"
