"""Failures that a worker has met before: they are counted, and most later runs are steered away from them."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass

from swarden.harness.core.admission import load_log
from swarden.harness.core.driver import Failure
from swarden.harness.core.errors import UsageError
from swarden.harness.core.known_bug import KnownBug
from swarden.harness.core.oplog import Header, OpLog, OpLogError
from swarden.harness.core.ops import Drain, Op, Step, Submit, name_of
from swarden.harness.core.registry import target_for, target_of
from swarden.harness.core.replay import failure_like
from swarden.harness.core.target import simplified
from swarden.harness.search.keys import BEFORE_HASH, Key, is_of, key_of, kind_of
from swarden.harness.search.result import Finding
from swarden.harness.search.shrink.shrink import BudgetSpent, ShrinkBudget, Shrunk, shrink
from swarden.harness.search.verification import Cause, Verifier

CONFIRMATIONS = 2  # failed runs of one fingerprint that are run twice; later ones are not run again
SHRINK_EXECUTIONS = 150  # not CPU time: the next runs of a campaign must not depend on the speed of the machine
SHRINK_STEPS = 1500  # of the engine, in all executions: a log that fails because nothing happens has long ones
UNSTEERED_EVERY = 4  # one run of so many is not steered: another bug may follow this one
MIN_PRECISION = 0.5  # below it a trail rarely ends in its failure, and no op is skipped for it
UNAVOIDABLE = (Submit, Step, Drain)  # a run needs these ops, so the run is cut instead


@dataclass
class Trail:
    """The op kinds and settings that lead to a failure, from its shrunk log.

    `settings` holds for each engine the settings that differ from the default.  `kinds` are the kinds of the ops in
    their order; a kind that repeats is listed once.  `followed` counts the unsteered runs that reached the last kind,
    `failed` those that then had this failure; both begin with the runs that confirmed it.
    """

    engine: str
    machine: str
    settings: list[dict[str, object]]
    kinds: list[str]
    followed: int = CONFIRMATIONS
    failed: int = CONFIRMATIONS

    @classmethod
    def of(cls, log: OpLog) -> "Trail":
        names, defaults = [name_of(op) for op in log.ops], simplified(target_for(log.header))
        kinds = [name for index, name in enumerate(names) if index == 0 or names[index - 1] != name]
        settings = [
            {name: value for name, value in engine.items() if value != defaults.get(name, value)}
            for engine in log.header.configs
        ]
        return cls(log.header.engine, log.header.machine, settings, kinds)

    @property
    def _defaults(self) -> Mapping[str, object]:
        return simplified(target_of(self.engine))

    def widen(self, header: Header) -> None:
        """Make the trail cover a header whose run had the same failure.

        A setting that is nearer to its default there takes that value.  A setting is removed from the trail if it is at
        its default there or on the other side of its default, or if it differs and is not a number.
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
        """Whether a run with this header can follow the trail: each setting is at least as far from its default."""
        pairs = zip(self.settings, header.configs, strict=False)
        return header.machine == self.machine and all(
            all(is_as_far(self._defaults[name], value, engine.get(name)) for name, value in settings.items())
            for settings, engine in pairs
        )


class Steering:
    """The number of failures by name, and the position of the current run on each trail."""

    def __init__(self, verifier: Verifier, logs: Iterable[OpLog] = ()) -> None:
        """`logs` are the shrunk logs of failures that were confirmed before; each expects its failure."""
        self._verifier = verifier
        shrunk = {log.header.expected: log for log in logs if log.header.expected is not None}
        self.times: Counter[str] = Counter(dict.fromkeys(shrunk, CONFIRMATIONS))
        self._trails: dict[str, Trail] = {name: Trail.of(log) for name, log in shrunk.items()}
        self._without_key = shrunk
        self._keys: dict[str, Key] = {}  # by name
        self._positions: dict[str, int] = {}  # by trail, the number of its kinds that the current run has had
        self._reached: set[str] = set()
        self._is_steered = False
        self._is_cut = False

    def begin_run(self, header: Header) -> None:
        """Start a run; only its seed and its ordinal decide if it is steered."""
        self._positions = {name: 0 for name, trail in self._trails.items() if trail.begins_with(header)}
        self._reached.clear()
        self._is_steered = (header.seed + header.run) % UNSTEERED_EVERY != 0
        self._is_cut = False

    def steer(self, op: Op) -> bool:
        """Advance each trail by an op; true if the op is skipped because it would complete a trail in a steered run.

        No op is skipped for a trail that rarely ends in its failure.  If the run needs ops of this kind, the run is
        cut: all its later ops are skipped too.
        """
        if self._is_cut:
            return True
        completed = [name for name in self._positions if self._advance(name, op)]
        self._reached.update(completed)
        if not self._is_steered or not any(map(self._is_precise, completed)):
            return False
        self._is_cut = isinstance(op, UNAVOIDABLE)
        return True

    def cause_of(self, failure: Failure, log: OpLog) -> Cause:
        return self._verifier.cause_of(failure, log)

    def named(self, finding: Finding, failure: Failure, heartbeat: Callable[[], None]) -> Finding:
        """The finding of a failure that no fix cures, with its key, and a name of its own behind a first namesake."""
        fingerprint = finding.fingerprint
        for name in [name for name in self._without_key if name.partition(BEFORE_HASH)[0] == fingerprint]:
            log = self._without_key.pop(name)
            if (same := failure_like(log, fingerprint, heartbeat)) is not None:
                self._keys[name] = key_of(log, same, heartbeat)
        key = key_of(finding.log, failure, heartbeat)
        namesakes = [name for name in self._keys if name.partition(BEFORE_HASH)[0] == fingerprint]
        name = next((namesake for namesake in namesakes if is_of(key, self._keys[namesake])), "")
        if not name:
            name = kind_of(fingerprint, key) if namesakes else fingerprint
            self._keys[name] = key
        return finding.changed(key=self._keys[name], suffix=name.removeprefix(fingerprint))

    def record(self, finding: Finding, heartbeat: Callable[[], None]) -> Shrunk | None:
        """Count a failure. The one that confirms it gives the trail; later ones widen the trail.

        Returns the shrunk log of the failure that confirms it, if it fails again.  A failure of known bugs is not
        shrunk: the trail of a bug is that of its own op-log.
        """
        name, log, small = finding.kind, finding.log, None
        if bug := target_for(log.header).known_bugs().get(name):
            self._trails.setdefault(name, Trail.of(_own_log(bug, log)))
        if name in self._trails:
            self._trails[name].widen(log.header)
        elif not finding.cause.bugs and self.times[name] + 1 == CONFIRMATIONS:
            small = _shrunk(log, finding.fingerprint, heartbeat)
            self._trails[name] = Trail.of(small.log if small is not None else log)
        self.times[name] += 1
        return small

    def end_run(self, names: Collection[str] = ()) -> None:
        """Count how often trails end in their failure, in runs that are not steered; `names` are the run's failures."""
        for name in () if self._is_steered else self._reached:
            trail = self._trails[name]
            trail.followed += 1
            trail.failed += name in names

    def _advance(self, name: str, op: Op) -> bool:
        """Advance a trail by `op`; true if `op` completes the trail."""
        kinds, position = self._trails[name].kinds, self._positions[name]
        if name_of(op) != kinds[position]:
            return False
        is_last = position == len(kinds) - 1
        self._positions[name] += not is_last
        return is_last

    def _is_precise(self, name: str) -> bool:
        return self._trails[name].failed >= MIN_PRECISION * self._trails[name].followed


def is_as_far(default: object, mark: object, value: object) -> bool:
    """Whether `value` is at least as far from the default as `mark`, on the same side.

    If the default is None, every value that is set is far enough.  Values that are not numbers must be equal.
    """
    if default is None and mark is not None:
        return value is not None
    numbers = [each for each in (default, mark, value) if isinstance(each, int | float) and not isinstance(each, bool)]
    if len(numbers) < 3:
        return value == mark
    start, far, here = numbers
    return here <= far if far < start else here >= far


def _own_log(bug: KnownBug, otherwise: OpLog) -> OpLog:
    """The op-log of a known bug; `otherwise` if it has none here, or the engine cannot be built from it."""
    for path in list(bug.oplogs)[:1]:
        with suppress(OpLogError):
            return load_log(path, engine=f"{otherwise.header.engine}=={otherwise.header.version}")
    return otherwise


def _shrunk(log: OpLog, fingerprint: str, heartbeat: Callable[[], None]) -> Shrunk | None:
    """The log, shrunk within a few executions and steps; None if it does not fail again."""
    num_steps = 0

    def count_step() -> None:
        nonlocal num_steps
        num_steps += 1
        heartbeat()

    def still_fails(candidate: OpLog) -> Failure | None:
        if num_steps >= SHRINK_STEPS:
            raise BudgetSpent
        return failure_like(candidate, fingerprint, count_step)

    try:
        return shrink(log, still_fails, ShrinkBudget(executions=SHRINK_EXECUTIONS, cpu_seconds=float("inf")))
    except UsageError:  # it does not fail, or the engine cannot be built again
        return None
