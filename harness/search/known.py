"""Failures that a worker has met before: they are counted, and most later runs are kept off the way to them."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from harness.core.driver import Failure
from harness.core.oplog import Header, OpLog
from harness.core.ops import Drain, Op, Step, Submit, name_of
from harness.core.registry import target_of
from harness.core.replay import failure_like
from harness.search.shrink import Budget, DoesNotFail, shrink

CONFIRMATIONS = 2  # runs of one fingerprint that are run twice; further ones are only counted
SHRINK_EXECUTIONS = 150  # no CPU time: what a campaign does next must not depend on the machine's speed
UNSTEERED_EVERY = 4  # of the runs on a known way each fourth goes on: another bug may lie behind
MIN_PRECISION = 0.5  # a way that mostly does not end in its failure is no reason to leave anything out
UNAVOIDABLE = (Submit, Step, Drain)  # a run without these is no run


@dataclass
class Trail:
    """The way to a known failure, as its shrunk log shows it.

    `settings` are those of each engine that could not be made the default, `kinds` the kinds of ops in their order,
    equal neighbours once.  `followed` counts the runs that came to the last of these ops, `failed` those that then
    failed so.
    """

    engine: str
    machine: str
    settings: list[dict[str, object]]
    kinds: list[str]
    followed: int = CONFIRMATIONS
    failed: int = CONFIRMATIONS

    @classmethod
    def of(cls, log: OpLog) -> "Trail":
        names, defaults = [name_of(op) for op in log.ops], target_of(log.header.engine).simplified
        kinds = [name for index, name in enumerate(names) if index == 0 or names[index - 1] != name]
        settings = [
            {name: value for name, value in engine.items() if value != defaults.get(name, value)}
            for engine in log.header.configs
        ]
        return cls(log.header.engine, log.header.machine, settings, kinds)

    @property
    def _defaults(self) -> Mapping[str, object]:
        return target_of(self.engine).simplified

    def widen(self, header: Header) -> None:
        """A run of this header failed in the same way: its settings are on the trail, too.

        A setting that is at its default there, or beyond it on the other side, does not matter.
        """
        for settings, engine in zip(self.settings, header.configs, strict=False):
            for name, mark in list(settings.items()):
                default, value = self._defaults[name], engine.get(name)
                if value == default:
                    del settings[name]
                elif not is_as_far(default, mark, value):
                    settings[name] = value
                    if not is_as_far(default, value, mark):
                        del settings[name]

    def begins_with(self, header: Header) -> bool:
        """Whether a run of this header can follow the trail: each setting is as far from its default, or further."""
        pairs = zip(self.settings, header.configs, strict=False)
        return header.machine == self.machine and all(
            all(is_as_far(self._defaults[name], value, engine.get(name)) for name, value in settings.items())
            for settings, engine in pairs
        )


class KnownFailures:
    """How often each fingerprint was met, and where the current run stands on the trail of each."""

    def __init__(self) -> None:
        self.times: Counter[str] = Counter()
        self._trails: dict[str, Trail] = {}
        self._places: dict[str, int] = {}  # how many kinds of each trail the current run has behind it
        self._reached: set[str] = set()
        self._is_steered = False
        self._is_cut = False

    def begin_run(self, header: Header) -> None:
        """A new run, which is steered or not by its ordinal alone."""
        self._places = {name: 0 for name, trail in self._trails.items() if trail.begins_with(header)}
        self._reached.clear()
        self._is_steered = (header.seed + header.run) % UNSTEERED_EVERY != 0
        self._is_cut = False

    def leaves_out(self, op: Op) -> bool:
        """Whether an op would complete the trail of a known failure in a run that is steered.

        Where the run cannot go on without such ops it is cut: all that follows is left out too.
        """
        if self._is_cut:
            return True
        completed = [name for name in self._places if self._advance(name, op)]
        self._reached.update(completed)
        if not self._is_steered or not any(map(self._is_precise, completed)):
            return False
        self._is_cut = isinstance(op, UNAVOIDABLE)
        return True

    def meet(self, failure: Failure, log: OpLog, beat: Callable[[], None]) -> None:
        """Count a failure; once it is confirmed, find the trail to it."""
        self.times[failure.fingerprint] += 1
        if self.times[failure.fingerprint] == CONFIRMATIONS:
            self._trails[failure.fingerprint] = Trail.of(_shrunk(log, failure.fingerprint, beat))
        elif self.times[failure.fingerprint] > CONFIRMATIONS:
            self._trails[failure.fingerprint].widen(log.header)

    def end_run(self, failure: Failure | None) -> None:
        """Learn from a run that was not steered how surely each trail ends in its failure."""
        for name in () if self._is_steered else self._reached:
            trail = self._trails[name]
            trail.followed += 1
            trail.failed += failure is not None and name in failure.fingerprints

    def _advance(self, name: str, op: Op) -> bool:
        """Whether `op` is the last that the trail lacks."""
        kinds, place = self._trails[name].kinds, self._places[name]
        if name_of(op) != kinds[place]:
            return False
        is_last = place == len(kinds) - 1
        self._places[name] += not is_last
        return is_last

    def _is_precise(self, name: str) -> bool:
        return self._trails[name].failed >= MIN_PRECISION * self._trails[name].followed


def is_as_far(default: object, mark: object, value: object) -> bool:
    """Whether a setting of `value` is as far from its default as one of `mark`, on the same side.

    A setting without a default is as far as any other once it is set.
    """
    if default is None and mark is not None:
        return value is not None
    numbers = [one for one in (default, mark, value) if isinstance(one, int | float) and not isinstance(one, bool)]
    if len(numbers) < 3:
        return value == mark
    start, far, here = numbers
    return here <= far if far < start else here >= far


def _shrunk(log: OpLog, fingerprint: str, beat: Callable[[], None]) -> OpLog:
    """The log made smaller within a few executions; as it is where it does not fail again."""

    try:
        budget = Budget(executions=SHRINK_EXECUTIONS, cpu_seconds=float("inf"))
        return shrink(log, lambda candidate: failure_like(candidate, fingerprint, beat), budget).log
    except DoesNotFail:
        return log
