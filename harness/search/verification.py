"""Which failures are of known bugs: those that the fixes of these bugs cure.

A fingerprint alone proves nothing: many bugs end in `work_makes_progress/engine/stuck`, and a bug can end in many ways.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from swarden.harness.core.changes import patch_of
from swarden.harness.core.driver import Failure
from swarden.harness.core.known_bug import PRIVATE, KnownBug
from swarden.harness.core.marks import changed_functions
from swarden.harness.core.oplog import OpLog
from swarden.harness.core.patch import Patch
from swarden.harness.core.target import Target
from swarden.harness.search import cures
from swarden.harness.search.mutes import Mute

MOST_FIXES = 8  # of bugs with one fingerprint that are tried: each costs a replay of an unshrunk log
AND = " + "  # between the names of bugs that are known together
OR = " or "  # between the names of bugs of which each fix alone lets the log pass


@dataclass(frozen=True)
class Cause:
    """The known bugs whose fixes cure a failure, `bugs`: all together and no fewer, or each alone if `is_either`.

    Without them, `namesakes` are the known bugs with its fingerprint, each with the reason for which it is not the
    cause; with the fixes `fails_with` the log fails, too, with the fingerprint `revealed` if that is another failure.
    """

    bugs: tuple[str, ...] = ()
    namesakes: Mapping[str, str] = field(default_factory=dict)
    fails_with: tuple[str, ...] = ()
    is_either: bool = False
    revealed: str = ""

    @property
    def name(self) -> str:
        """The bugs, joined; "" if the failure is not known."""
        return (OR if self.is_either else AND).join(self.bugs)


UNKNOWN = Cause()


class Verifier:
    """Tries the fixes of known bugs on the logs of failures; `planted` fixes are in the engine already."""

    def __init__(self, target: Target, planted: Collection[str], trials: cures.Trials = cures.NO_TRIALS) -> None:
        self._trials = trials
        self._bugs = {name: bug for name, bug in target.known_bugs().items() if name not in planted}
        self._target = target

    @cached_property
    def _fixes(self) -> dict[str, Patch]:
        """The fixes that fit this build, by bug."""
        patches = {name: patch_of(self._target, bug) for name, bug in self._bugs.items()}
        return {name: patch for name, patch in patches.items() if patch is not None}

    def cause_of(self, failure: Failure, log: OpLog) -> Cause:
        """The cause of the failure of a log: the fixes of its namesakes are tried alone, then together, then all fixes.

        With a mutant planted the cause is unknown, because a fix may hide the mutant.
        """
        if log.header.mutant is not None or not self._fixes:
            return Cause(namesakes={name: self._why_not(name) for name in self._namesakes(failure)})
        refusing = {name for name, bug in self._bugs.items() if bug.refuses}
        tester = cures.FixTester(log, failure, [*self._fixes.values()], self._trials, refusing)
        if curing := [name for name in self._reached(tester, (), failure)[:MOST_FIXES] if tester.cures([name])]:
            return Cause(tuple(sorted(curing)), is_either=True)
        named = together = self._together(tester)
        rest = tester.ending(named).failure
        if is_same_left := tester.ending(named).is_of(failure):
            together = self._together(tester, named, only_named=False)
        if tester.cures(together):
            return Cause(tuple(sorted(tester.fewest(together))))
        why = {name: self._why_not(name, tester) for name in self._namesakes(failure)}
        if rest is None or rest.op_index != failure.op_index:  # they refuse what the log asks for, or delay it
            return Cause(namesakes=why)
        if not is_same_left:
            return Cause(fails_with=tuple(named), revealed=rest.fingerprint)
        last = tester.ending(together)
        is_last = last.is_of(failure) and last.failure is not None and last.failure.op_index == failure.op_index
        return Cause(namesakes=why, fails_with=tuple(together if is_last else named))

    def _why_not(self, name: str, tester: cures.FixTester | None = None) -> str:
        patch = self._fixes.get(name)
        if patch is None or tester is None:
            return cures.DOES_NOT_FIT if self._bugs[name].patch_for(self._target.version()) else cures.HAS_NO_FIX
        if self._bugs[name].broad:
            return cures.IS_BROAD
        if name not in tester.ending().reached:
            return tester.errors.get(frozenset(), cures.NOT_REACHED if changed_functions(patch) else cures.DOES_NOT_FIT)
        return tester.errors.get(frozenset([name]), cures.DOES_NOT_HELP)

    def _namesakes(self, failure: Failure) -> list[str]:
        """The bugs that this build may have with a fingerprint of the failure; those with its first one come first."""
        version = self._target.version()
        bugs = [bug for bug in self._bugs.values() if bug.has(version) or bug.name in self._fixes]
        named = [bug for bug in bugs if bug.is_called(failure.fingerprints)]
        return [bug.name for bug in sorted(named, key=lambda bug: failure.fingerprint not in bug.fingerprints)]

    def _reached(self, tester: cures.FixTester, fixes: Sequence[str], failure: Failure | None = None) -> list[str]:
        """The fixes that the log reaches with these fixes, those of the namesakes of a failure, or all.

        A broad fix is none of them.
        """
        names, reached = self._fixes if failure is None else self._namesakes(failure), tester.ending(fixes).reached
        return [name for name in names if name in reached and not self._bugs[name].broad]

    def _together(self, tester: cures.FixTester, fixes: Sequence[str] = (), *, only_named: bool = True) -> list[str]:
        """These fixes, and those that the log reaches with them, and so on until it passes or reaches no further one.

        With `only_named`, only fixes of namesakes of the remaining failure are added.
        """
        together = list(fixes)
        while (remaining := tester.ending(together).failure) is not None:
            extended = tester.extended(together, self._reached(tester, together, remaining if only_named else None))
            if extended == together:
                break
            together = extended
        return together


def muted_by(name: str, mutes: Mapping[str, Mute]) -> Mute | None:
    """The mute of the cause with this name: of a bug whose fix alone cures, or of all that cure together; or None."""
    for together in name.split(OR):
        of_bugs = [mutes.get(bug) for bug in together.split(AND)]
        if all(of_bugs):
            return of_bugs[0]
    return None


def bugs_in(name: str) -> list[str]:
    """The names of the bugs in the name of a Cause."""
    return name.replace(OR, AND).split(AND)


def known_lines(runs_by_cause: Counter[str], target: Target) -> list[str]:
    """A line for each known bug, or each group of bugs that are known together, the most frequent first."""
    lines = []
    for name, runs in runs_by_cause.most_common():
        place = upstream_of(name, target)
        lines.append(f"known: {name}{times(runs)}" + (f" ({place})" if place else ""))
    return lines


def times(runs: int) -> str:
    """The number of failed runs as text; "" for none, as for a failure of the corpus or of a dead worker."""
    return f" \N{MULTIPLICATION SIGN}{runs}" if runs else ""


def upstream_of(name: str, target: Target) -> str:
    """Where the bugs of a cause are described: the issue or pull request to comment on, else the first related one.

    A bug that the target does not have any more is left out; "" if no bug is left.
    """
    of_target = target.known_bugs()
    bugs = [of_target[bug] for bug in bugs_in(name) if bug in of_target]
    return ", ".join(dict.fromkeys(_described(bug, target.name) for bug in bugs))


def _described(bug: KnownBug, engine: str) -> str:
    place = _place_of(bug, bug.repository.partition("@")[0] or engine)
    return f"avoided by {bug.avoided_by}; {place}" if bug.avoided_by and place != PRIVATE else place


def _place_of(bug: KnownBug, engine: str) -> str:
    if bug.verdict == PRIVATE:
        return PRIVATE
    if (place := bug.verdict.removeprefix("comment on ")) != bug.verdict:
        return f"{engine} {place}"
    related = next(iter(bug.upstream), None)
    if related is None:
        return "no upstream issue found"
    return f"{related.repository or engine} {related.kind} {related.number}"
