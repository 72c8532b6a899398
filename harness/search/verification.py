"""Which failures are of known bugs: those whose log passes with the fixes of bugs that have their fingerprint.

A fingerprint alone proves nothing: many bugs end in `work_makes_progress/engine/stuck`.
"""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from swarden.harness.core.driver import Failure
from swarden.harness.core.errors import UsageError, text_of
from swarden.harness.core.known_bug import PRIVATE, KnownBug
from swarden.harness.core.oplog import OpLog
from swarden.harness.core.replay import failure_like, run_log
from swarden.harness.core.target import Target

MOST_FIXES = 8  # of bugs with one fingerprint that are tried: each costs a replay of an unshrunk log
AND = " + "  # between the names of bugs that are known together
OR = " or "  # between the names of bugs of which each fix alone lets the log pass
HAS_NO_FIX = "has no fix for this release"
DOES_NOT_HELP = "its fix does not help"
NOT_TRIED = "its fix was not tried"
DEATHS_OF_A_FIX = 2  # with different logs; then the fix is not tried any more
BREAKS = (ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)


@dataclass(frozen=True)
class Cause:
    """What is known of a failure.

    `bugs` are the known bugs whose fixes make its log pass: all together and no fewer, or each alone if `is_either`.
    If there are none, `namesakes` are the known bugs that have its fingerprint, each with the reason for which it is
    not verified, and `behind` the fixes with which the log still fails; `revealed` is the fingerprint of that failure
    if it is another one.
    """

    bugs: tuple[str, ...] = ()
    namesakes: Mapping[str, str] = field(default_factory=dict)
    behind: tuple[str, ...] = ()
    is_either: bool = False
    revealed: str = ""

    @property
    def name(self) -> str:
        """The bugs as a key of counts; "" if the failure is not known."""
        return (OR if self.is_either else AND).join(self.bugs)


UNKNOWN = Cause()


Deaths = Mapping[frozenset[str], Mapping[str, str]]  # by fixes and by the key of a log: how the process ended


class Trial(NamedTuple):
    """A replay of a failure's log with fixes has begun; without fixes, the last replay has ended."""

    fixes: tuple[str, ...] = ()
    fingerprint: str = ""  # of the failure without them
    log: OpLog | None = None


@dataclass(frozen=True)
class Trials:
    """The reports of a process on its trials, and the results of earlier trials.

    `beat` is called once an engine step, `report` before and after each trial.  `deaths` has the trials that ended
    earlier processes: fixes are not tried again with the same log, nor with any log after DEATHS_OF_A_FIX.
    """

    beat: Callable[[], None] = lambda: None
    report: Callable[[Trial], None] = lambda _: None
    deaths: Deaths = field(default_factory=dict)


NO_TRIALS = Trials()


class Verifier:
    """Tries the fixes of known bugs on the logs of failures; `planted` fixes are in the engine already."""

    def __init__(self, target: Target, planted: Collection[str], trials: Trials = NO_TRIALS) -> None:
        self._version, self._trials = target.version(), trials
        bugs = target.known_bugs()
        self._bugs = {name: bug for name, bug in bugs.items() if name not in planted and bug.has(self._version)}

    def cause_of(self, failure: Failure, log: OpLog) -> Cause:
        """The cause of the failure of a log; each fix is tried alone first.

        With a mutant planted the cause is unknown, because a fix may hide the mutant.
        """
        if log.header.mutant is not None:
            return UNKNOWN
        named = self._namesakes(failure)
        trial = _Replays(log, failure, self._trials)
        if not (fixes := self._fixed(named)):
            return Cause(namesakes=dict.fromkeys(named, HAS_NO_FIX)) if named else UNKNOWN
        if cures := [one for one in fixes if trial.passes([one])]:
            return Cause(tuple(sorted(cures)), is_either=True)
        why = {one: self._why_not(one, fixes, trial) for one in named}
        together: list[str] = []
        seen: set[str] = set()
        left: Failure | None = failure
        while left is not None and (more := [one for one in self._fixed(self._namesakes(left)) if one not in seen]):
            seen.update(more)
            together = trial.extended(together, more)
            left = trial.failure_with(together)
        if left is None:
            return Cause(tuple(sorted(_fewest(together, trial))))
        revealed = "" if failure.fingerprint in left.fingerprints else left.fingerprint
        return Cause(namesakes={} if revealed else why, behind=tuple(together), revealed=revealed)

    def is_cause(self, name: str, failure: Failure, log: OpLog, behind: Sequence[str]) -> bool | None:
        """Whether the fix of a bug removes the failure, alone or together with the fixes that the log fails `behind`.

        None if it is unknown, because the log cannot be run with the fixes.
        """
        replays = _Replays(log, failure, self._trials)

        def is_same(fixes: Sequence[str]) -> bool:
            left = replays.failure_with(fixes)
            return left is not None and failure.fingerprint in left.fingerprints

        others = [one for one in behind if one != name]
        is_cause = not is_same([name]) or (not is_same(behind) and is_same(others))
        is_unknown = any(frozenset(fixes) in replays.errors for fixes in ([name], behind, others))
        return None if is_unknown and not is_cause else is_cause

    def failure_behind(self, log: OpLog, fingerprint: str) -> Failure | None:
        """Run a log with fixes that were tried; its failure if it has this fingerprint."""
        return failure_like(log, fingerprint, self._trials.beat)

    def _why_not(self, name: str, tried: Sequence[str], trial: "_Replays") -> str:
        if self._bugs[name].patch_for(self._version) is None:
            return HAS_NO_FIX
        return trial.errors.get(frozenset([name]), DOES_NOT_HELP) if name in tried else NOT_TRIED

    def _namesakes(self, failure: Failure) -> list[str]:
        """The bugs with a fingerprint of the failure; bugs with its first fingerprint come first."""
        names = [name for name, bug in self._bugs.items() if set(failure.fingerprints) & {*bug.fingerprints}]
        return sorted(names, key=lambda name: failure.fingerprint not in self._bugs[name].fingerprints)

    def _fixed(self, names: Sequence[str]) -> list[str]:
        """The first of these bugs that have a fix."""
        return [name for name in names if self._bugs[name].patch_for(self._version) is not None][:MOST_FIXES]


class _Replays:
    """Replays of one log with fixes; `errors` has, by fixes, why the log could not be run with them."""

    def __init__(self, log: OpLog, failure: Failure, trials: Trials) -> None:
        self._log, self._failure, self._trials = log, failure, trials
        self.errors = {fixes: why for fixes, deaths in trials.deaths.items() if (why := _why_deadly(deaths, log))}
        self._tried: dict[frozenset[str], Failure | None] = dict.fromkeys(self.errors, failure)

    def passes(self, fixes: Sequence[str]) -> bool:
        return self.failure_with(fixes) is None

    def extended(self, fixes: Sequence[str], more: Sequence[str]) -> list[str]:
        """The fixes and those of `more` with which the log can be run."""
        if self._can_run([*fixes, *more]):
            return [*fixes, *more]
        extended = list(fixes)
        for one in more:
            if self._can_run([one]) and self._can_run([*extended, one]):
                extended.append(one)
        return extended

    def failure_with(self, fixes: Sequence[str]) -> Failure | None:
        """The failure of the log with these fixes; its own failure without fixes, or if it cannot be run with them."""
        key = frozenset(fixes)
        if key and key not in self._tried:
            self._trials.report(Trial(tuple(fixes), self._failure.fingerprint, self._log))
            try:
                self._tried[key] = run_log(self._log.with_fixes(fixes), observe=lambda *_: self._trials.beat()).failure
            except UsageError as error:  # the fix does not fit, or the target fails with it
                self._tried[key], self.errors[key] = self._failure, f"its fix could not be tried: {error}"
            except BREAKS as error:  # an invariant may raise in a state that only the fix reaches
                why = f"its fix could not be tried: {type(error).__name__}: {' '.join(text_of(error).split())}"
                self._tried[key], self.errors[key] = self._failure, why
            finally:
                self._trials.report(Trial())
        return self._tried[key] if key else self._failure

    def _can_run(self, fixes: Sequence[str]) -> bool:
        if any(bad <= {*fixes} for bad in self.errors):
            return False
        self.failure_with(fixes)
        return frozenset(fixes) not in self.errors


def _why_deadly(deaths: Mapping[str, str], log: OpLog) -> str:
    """Why fixes are not tried with a log, if their trials have ended processes; else ""."""
    if how := deaths.get(log.key):
        return f"{DOES_NOT_HELP}: with it the process {how}"
    if len(deaths) < DEATHS_OF_A_FIX:
        return ""
    return f"{NOT_TRIED}: with {len(deaths)} other logs the process {' and '.join(sorted({*deaths.values()}))}"


def _fewest(fixes: Sequence[str], trial: _Replays) -> list[str]:
    """The fixes without which the log would not pass, of fixes with which it passes together."""
    needed = list(fixes)
    for one in fixes:
        rest = [other for other in needed if other != one]
        if trial.passes(rest):
            needed = rest
    return needed


def names_in(known: str) -> list[str]:
    """The names of the bugs in the `name` of a Cause."""
    return known.replace(OR, AND).split(AND)


def known_lines(known: Counter[str], target: Target | None) -> list[str]:
    """A line for each known bug, or each group of bugs that are known together, the most frequent first.

    The bugs have their bare names if there is no target.
    """
    lines = []
    for names, runs in known.most_common():
        place = upstream_of(names, target) if target is not None else ""
        lines.append(f"known: {names}{times(runs)}" + (f" ({place})" if place else ""))
    return lines


def times(runs: int) -> str:
    """The number of failed runs as text; "" for none, as for a failure of the corpus or of a dead worker."""
    return f" \N{MULTIPLICATION SIGN}{runs}" if runs else ""


def upstream_of(names: str, target: Target) -> str:
    """Where known bugs are described: the issue or pull request to comment on, else the first related one.

    A bug that the target does not have any more is left out; "" if no bug is left.
    """
    of_target = target.known_bugs()
    bugs = [of_target[name] for name in names_in(names) if name in of_target]
    return ", ".join(dict.fromkeys(_described(bug, target.name) for bug in bugs))


def _described(bug: KnownBug, engine: str) -> str:
    if bug.verdict == PRIVATE:
        return PRIVATE
    if (place := bug.verdict.removeprefix("comment on ")) != bug.verdict:
        return f"{engine} {place}"
    related = next(iter(bug.upstream), None)
    if related is None:
        return "no upstream issue found"
    return f"{related.repository or engine} {related.kind} {related.number}"
