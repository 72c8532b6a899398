"""Which fixes of known bugs cure a failure: how a log ends on this build with some of them planted.

Fixes cure a failure if the log passes with them, each changes a statement that the log reaches before it fails without
that fix, and no request that is served without them is refused with them up to the step of that failure.  A drain is
added to the log, so that a fix which only delays the failure does not cure it.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import NamedTuple

from swarden.harness.core.driver import Driver, Failure
from swarden.harness.core.errors import UsageError, text_of
from swarden.harness.core.fingerprint import is_same
from swarden.harness.core.marks import marked
from swarden.harness.core.oplog import OpLog
from swarden.harness.core.ops import Drain
from swarden.harness.core.patch import Patch
from swarden.harness.core.replay import run_log
from swarden.invariants.events import FinishReason
from swarden.invariants.transition import Transition

HAS_NO_FIX = "has no fix for this release"
DOES_NOT_FIT = "its fix does not fit this code"
DOES_NOT_HELP = "its fix does not help"
IS_BROAD = "its fix cures other bugs, too"
NOT_REACHED = "the code that its fix changes did not run"
NOT_TRIED = "its fix was not tried"
DEATHS_OF_A_FIX = 2  # with different logs; then the fix is not tried any more
BREAKS = (ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)
ANSWERED = (FinishReason.STOP, FinishReason.LENGTH)

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
    earlier processes: fixes are not tried again with the same log, nor with any log after DEATHS_OF_A_FIX.  No replay
    begins when `is_stopped`.
    """

    beat: Callable[[], None] = lambda: None
    report: Callable[[Trial], None] = lambda _: None
    deaths: Deaths = field(default_factory=dict)
    is_stopped: Callable[[], bool] = lambda: False


NO_TRIALS = Trials()


class Served(NamedTuple):
    """What a client got: whether there were output tokens, why the request ended, and whether the client aborted it."""

    has_outputs: bool
    reason: str | None = None
    is_aborted: bool = False


@dataclass
class Ending:
    """The end of a log: its failure, the fixes that it reaches and that are not planted, and what clients got.

    With fixes, only the transitions up to the step of the failure without them count: the run without them might refuse
    later requests, too.  A request is named by its engine and the ordinal of its submission, because an engine may give
    a rejected request further ids.
    """

    failure: Failure | None = None
    reached: set[str] = field(default_factory=set)
    requests: dict[tuple[int, int], Served] = field(default_factory=dict)

    def is_of(self, failure: Failure) -> bool:
        """Whether the log fails with this failure."""
        return self.failure is not None and is_same(failure.fingerprints, self.failure.fingerprints)

    def drops(self, without: "Ending") -> bool:
        """Whether the engine ends a request unanswered that it serves in the run without, and no client aborts it."""
        served = [
            name
            for name, request in without.requests.items()
            if request.has_outputs and not request.is_aborted and request.reason in (None, *ANSWERED)
        ]
        ends = [self.requests[name] for name in served if name in self.requests]
        return any(end.reason not in (None, *ANSWERED) and not end.is_aborted for end in ends)


class FixTester:
    """Tests which fixes cure a failing log, each set of fixes once.  `errors` has, by fixes, why it cannot be run.

    `candidates` are the patches for which it is noted whether the log reaches them; `refusing` are the fixes that may
    refuse what is served without them.
    """

    def __init__(
        self,
        log: OpLog,
        failure: Failure,
        candidates: Sequence[Patch],
        trials: Trials = NO_TRIALS,
        refusing: Collection[str] = (),
    ) -> None:
        self._log, self._failure, self._candidates, self._trials = log, failure, candidates, trials
        self._refusing = refusing
        self.errors = {fixes: why for fixes, deaths in trials.deaths.items() if (why := _why_deadly(deaths, log))}
        self._endings: dict[frozenset[str], Ending] = {fixes: Ending(failure) for fixes in self.errors}

    def ending(self, fixes: Sequence[str] = ()) -> Ending:
        """The end of the log with these fixes; its own failure if it cannot be run with them."""
        key = frozenset(fixes)
        if key not in self._endings and self._trials.is_stopped():
            self.errors[key] = f"{NOT_TRIED}: the campaign was stopped"
            return Ending(self._failure)
        if key not in self._endings:
            if fixes:
                self._trials.report(Trial(tuple(fixes), self._failure.fingerprint, self._log))
            try:
                self._endings[key] = self._run(fixes)
            except UsageError as error:  # the fix does not fit, or the target fails with it
                self.errors[key] = f"its fix could not be tried: {error}"
            except BREAKS as error:  # an invariant may raise in a state that only the fix reaches
                why = f"{type(error).__name__}: {' '.join(text_of(error).split())}"
                self.errors[key] = f"its fix could not be tried: {why}"
            finally:
                if fixes:
                    self._trials.report(Trial())
            self._endings.setdefault(key, Ending(self._failure))
        return self._endings[key]

    def cures(self, fixes: Sequence[str]) -> bool:
        """Whether the log fails without these fixes and passes with them, and they drop no request.

        A fix that may refuse requests may drop them.
        """
        ending, without = self.ending(fixes), self.ending()
        if not without.is_of(self._failure) or ending.failure is not None:
            return False
        return not ending.drops(without) or any(fix in self._refusing for fix in fixes)

    def extended(self, fixes: Sequence[str], more: Sequence[str]) -> list[str]:
        """The fixes and those of `more` with which the log can be run."""
        if self._can_run([*fixes, *more]):
            return [*fixes, *more]
        if len(more) < 2:
            return list(fixes)
        half = len(more) // 2
        return self.extended(self.extended(fixes, more[:half]), more[half:])

    def fewest(self, fixes: Sequence[str]) -> list[str]:
        """A subset of `fixes`, which cure the failure together, that cures it and is minimal; by halves, then fewer."""
        needed, size = list(fixes), len(fixes)
        while size := size // 2 if size > 1 else 0:
            for start in range(len(needed) - size, -1, -size):
                rest = needed[:start] + needed[start + size :]
                if rest and self.cures(rest):
                    needed = rest
        return needed

    def _run(self, fixes: Sequence[str]) -> Ending:
        others, reached = [bug for bug in self._candidates if bug.name not in fixes], set[str]()
        log = self._log.with_fixes(fixes)
        drained = OpLog(log.header, [*log.ops, Drain()] if fixes else log.ops)
        without = self.ending().failure if fixes else None
        last, transitions, requests = len(without.history) if without is not None else 0, count(1), {}

        def observe(driver: Driver, _: Transition) -> None:
            self._trials.beat()
            if next(transitions) == last:
                requests.update(_served(driver))

        driver = run_log(drained, observe=observe, inside=marked(others, reached))
        failure = driver.failure
        ending = Ending(failure, reached, requests or _served(driver))
        if failure is not None and failure.op_index == len(log.ops) and not ending.is_of(self._failure):
            ending.failure = None  # another failure, in the drain
        return ending

    def _can_run(self, fixes: Sequence[str]) -> bool:
        if any(bad <= {*fixes} for bad in self.errors):
            return False
        self.ending(fixes)
        return frozenset(fixes) not in self.errors


def _served(driver: Driver) -> dict[tuple[int, int], Served]:
    """What the client of each request has got so far."""
    return {
        (engine, number): Served(len(expected.tokens) > expected.prompt_len, expected.reason, expected.is_aborted)
        for engine, system in enumerate(driver.systems)
        for number, expected in enumerate(system.reference.expectations.values())
    }


def _why_deadly(deaths: Mapping[str, str], log: OpLog) -> str:
    """Why fixes are not tried with a log, if their trials have ended processes; else ""."""
    if how := deaths.get(log.key):
        return f"{DOES_NOT_HELP}: with it the process {how}"
    if len(deaths) < DEATHS_OF_A_FIX:
        return ""
    return f"{NOT_TRIED}: with {len(deaths)} other logs the process {' and '.join(sorted({*deaths.values()}))}"
