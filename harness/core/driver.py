"""The driver: applies ops to engines, and checks the invariants on each transition."""

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from swarden.harness.core.digest import Digest
from swarden.harness.core.errors import RunTooLarge, text_of
from swarden.harness.core.event_log import PassedOver
from swarden.harness.core.fingerprint import fingerprint_of_error, fingerprints, is_same
from swarden.harness.core.ops import Drain, Inject, Op, Step, name_of
from swarden.harness.core.origins import UNKNOWN_CODE, EngineCode
from swarden.harness.core.system import System
from swarden.harness.core.target_fault import TargetFault, blamed_on
from swarden.invariants.catalog import ALL, Catalog, Tally
from swarden.invariants.events import Finished, FinishReason, Retracted
from swarden.invariants.past import note
from swarden.invariants.transition import Transition, When
from swarden.invariants.view import Snapshot
from swarden.invariants.violation import Violation

STUCK = "stuck/drain"

ValueT = TypeVar("ValueT")


class Moment(NamedTuple):
    """The events of one transition of one system."""

    system: int
    step: int  # the engine step at its end
    events: Sequence[NamedTuple]
    origins: Sequence[str] = ()  # the place of each event in the engine's code, up to the last known; () untraced
    passed_over: Sequence[PassedOver] = ()  # branches that left requests out of a step; () untraced
    before: Snapshot | None = None  # the state before a step in which memory was short


@dataclass
class History:
    """The transitions of a run; `system` is the ordinal of the system that acts now or acted last."""

    moments: list[Moment] = field(default_factory=list)
    system: int = 0


@dataclass(frozen=True)
class Failure:
    """The first failure of a run: its fingerprints, the op and the engine that failed, and the evidence.

    If the engine raised an error or was stuck, `transition` starts and ends in the last captured state, and `history`
    has also the events between that and the error.
    """

    fingerprints: tuple[str, ...]
    op_index: int
    engine: int
    transition: Transition
    history: Sequence[Moment]  # of all engines
    violations: Sequence[Violation] = ()
    error: Exception | None = None
    frames: Sequence[str] = ()  # of the error, in the engine's code
    op: Op | None = None
    ops: Sequence[Op] = ()  # of the run up to `op`, or the latest of these

    @property
    def fingerprint(self) -> str:
        return self.fingerprints[0]

    def is_called(self, name: str) -> bool:
        return is_same([name], self.fingerprints)


class KeptParts(NamedTuple):
    """The parts of a run that a driver keeps: digests, and the number of the latest moments and ops (None: all)."""

    digests: bool = True
    moments: int | None = None
    ops: int | None = None


EVERYTHING = KeptParts()


class Checking(NamedTuple):
    """The invariants to check, and how often."""

    catalog: Catalog = ALL
    every: int = 1  # engine steps between checks; above 1, also at the start and the end of a drain
    code: EngineCode = UNKNOWN_CODE
    max_steps: int | None = None  # engine steps of a run, beyond which it raises RunTooLarge
    target: str = ""  # its name
    engines: int | None = None  # None: one per system; else the first systems are the first ranks, and so on


EACH_STEP = Checking()


class EngineRaised(Exception):
    """The engine raised `error`."""

    def __init__(self, error: Exception) -> None:
        super().__init__(text_of(error))
        self.error = error


class DrainStuck(Exception):
    """Requests are unfinished after the maximum number of steps of a drain."""


@dataclass
class Counts:
    """The counts of one run, for the coverage of a campaign."""

    engine_steps: int = 0
    is_limited: bool = False  # the run has reached the limit of its work
    ops: Counter[str] = field(default_factory=Counter)
    noops: Counter[str] = field(default_factory=Counter)
    tally: Tally = field(default_factory=Tally)


class Driver:
    """Applies ops to systems, and captures and checks one transition per step or op, until a check fails.

    After a failure every further op is skipped.  `observe` is called with every transition before it is checked.  An
    error of a capture raises TargetFault; an error of an invariant is an internal error, and is not caught.
    """

    def __init__(
        self,
        systems: Sequence[System],
        *,
        checking: Checking = EACH_STEP,
        keep: KeptParts = EVERYTHING,
        observe: Callable[[Transition], None] | None = None,
    ) -> None:
        self.systems = systems
        self.counts = Counts()
        self.ops: list[Op] = []
        self.digests: list[str] = []
        self.failure: Failure | None = None
        self._checking = checking
        self._keep = keep
        self._observe = observe
        self._last = [self._captured(system) for system in systems]
        self._checked: list[Snapshot | None] = [None] * len(systems)
        self._history = History()
        self._digest = Digest()

    def snapshot(self, system: int = 0) -> Snapshot:
        """The last captured state."""
        return self._last[system]

    @property
    def num_engines(self) -> int:
        return self._checking.engines or len(self.systems)

    @property
    def acting_system(self) -> int:
        """The ordinal of the system that made the last transition."""
        return self._history.moments[-1].system if self._history.moments else 0

    def apply(self, op: Op) -> None:
        """Record and execute an op, and check its transitions; an op that raises RunTooLarge is not recorded."""
        if self.failure is not None:
            return
        ranks = len(self.systems) // self.num_engines
        if isinstance(op, Inject) and op.rank is not None and op.rank >= ranks:
            raise ValueError(f"no rank {op.rank}: an engine has {ranks} here")
        self.ops.append(op)
        system = self._history.system = op.engine % self.num_engines
        try:
            has_effect = self._drain() if isinstance(op, Drain) else self._repeat(system, op)
        except EngineRaised as raised:
            self._fail(raised.error)
            return
        except DrainStuck as stuck:
            self._fail(stuck)
            return
        except RunTooLarge:
            self.ops.pop()
            self.counts.is_limited = True
            raise
        self.counts.ops[name_of(op)] += 1
        self.counts.noops[name_of(op)] += not has_effect
        if self._keep.ops is not None and self.failure is None:
            del self.ops[: -self._keep.ops]
        if self._keep.digests and self.failure is None:
            changed = self._last if isinstance(op, Drain) else self._last[system :: self.num_engines]
            self.digests.append(self._digest.of(changed))

    def _repeat(self, engine: int, op: Op) -> bool:
        has_effect = False
        for _ in range(op.count if isinstance(op, Step) else 1):
            has_effect |= self._advance(engine, op)
        return has_effect

    def _advance(self, engine: int, op: Op) -> bool:
        """Make one step of an engine, or execute another op, in all of its ranks until one fails."""
        has_effect = False
        for rank in range(engine, len(self.systems), self.num_engines):
            if self.failure is None:
                has_effect |= self._advance_rank(rank, op)
        return has_effect

    def _advance_rank(self, index: int, op: Op) -> bool:
        """Make one step, or execute another op; the transition is checked only if a check is due."""
        system = self.systems[index]
        self._history.system = index
        is_step, is_first = isinstance(op, Step), index < self.num_engines
        if is_step and is_first and self.counts.engine_steps == self._checking.max_steps:
            raise RunTooLarge(f"op {len(self.ops)}: the run has {self._checking.max_steps} engine steps before it ends")
        self.counts.engine_steps += is_step and is_first
        if self._checking.every > 1 and (not is_step or self.counts.engine_steps % self._checking.every):
            has_effect = self._call(lambda: system.do(op))
            self._events_of(system)
            return has_effect
        return self._transition(index, lambda: system.do(op), When.STEP if is_step else When.OP)

    def _call(self, act: Callable[[], ValueT]) -> ValueT:
        """Call the engine and return its result; any exception of the engine becomes EngineRaised.

        Raises RunTooLarge, with the number of the op, if the ops need too much memory.
        """
        try:
            return act()
        except TargetFault:
            raise
        except RunTooLarge as error:
            raise RunTooLarge(f"op {len(self.ops)}: {error}") from error
        except Exception as error:  # a finding, which ends the run
            raise EngineRaised(error) from error

    def _transition(self, index: int, act: Callable[[], ValueT], when: When) -> ValueT:
        """Call the engine, check the transition and return the result."""
        system = self.systems[index]
        self._history.system = index
        before = self._last[index]
        if self._checking.every > 1:
            before = self._captured(system)
            self._events_of(system)  # a capture may report events of the unchecked steps before
        result = self._call(act)
        after = self._last[index] = self._captured(system)
        events = self._events_of(system)
        change = Transition(
            before,
            events,
            after,
            when,
            system.reference,
            system.steps_without_forward,
            checked=self._checked[index],
            first=self._last[index % self.num_engines] if index >= self.num_engines else None,
        )
        self._check(index, change)
        return result

    def _captured(self, system: System) -> Snapshot:
        with blamed_on(self._checking.target, "capture"):
            return system.capture()

    def _events_of(self, system: System) -> list[NamedTuple]:
        with blamed_on(self._checking.target, "take_events"):
            return system.take_events()

    def _check(self, index: int, change: Transition) -> None:
        log = self.systems[index].log
        ended_short = any(event.reason == FinishReason.OUT_OF_MEMORY for event in change.events_of(Finished))
        before = change.before if ended_short or change.events_of(Retracted) else None
        moment = Moment(index, change.after.step, change.events, log.origins, log.passed_over, before)
        self._history.moments.append(moment)
        if self._keep.moments is not None:
            del self._history.moments[: -self._keep.moments]
        if self._observe is not None:
            self._observe(change)
        if self._keep.digests:
            self._digest.add(change)
        violations = self._checking.catalog.check(change, self.counts.tally)
        if violations:
            self.failure = Failure(
                fingerprints=tuple(fingerprints(violations)),
                op_index=self.counts.ops.total(),
                engine=index,
                transition=change,
                history=self._history.moments,
                violations=violations,
                op=self.ops[-1],
                ops=tuple(self.ops),
            )
        else:
            self._checked[index] = change.after
            if self._checking.every == 1:
                note(change)

    def _drain(self) -> bool:
        """Clear all faults, finish all requests within a bound, clear the caches, and check that every unit is free.

        Linked systems drain together: the systems with work make steps in turn until none has work.
        """
        for index, system in enumerate(self.systems):
            self._transition(index, system.heal, When.OP)
        bound = left = max(system.drain_bound for system in self.systems)
        while self.failure is None and (busy := self._call(self._busy)):
            if not left:
                # The first busy system that has requests, else the first: the others may only wait for it.
                stuck = next((index for index in busy if self._last[index].requests), busy[0])
                self._history.system = stuck
                raise DrainStuck(f"engine {stuck}: work left after {bound} steps of drain")
            left -= 1
            for engine in busy:
                if self.failure is None:
                    self._advance(engine, Step())
        for index, system in enumerate(self.systems):
            if self.failure is None:
                self._transition(index, system.clear, When.QUIESCENT)
        return True

    def _busy(self) -> list[int]:
        """The ordinals of the engines of which a rank has work."""
        engines = range(self.num_engines)
        return [engine for engine in engines if any(system.has_work for system in self.systems[engine :: len(engines)])]

    def _fail(self, error: Exception) -> None:
        """Record the error of the acting engine; the failed step has events since the last capture, but no snapshot.

        If the target cannot report these events any more, the error of the engine is still the failure.
        """
        index, moments, code = self._history.system, self._history.moments, self._checking.code
        system, last = self.systems[index], self._last[index]
        events: list[NamedTuple] = []
        with suppress(TargetFault):
            events = self._events_of(system)
        moments.append(Moment(index, last.step + 1, events, system.log.origins, system.log.passed_over))
        name = STUCK if isinstance(error, DrainStuck) else fingerprint_of_error(error, code.package, code.core)
        self.failure = Failure(
            fingerprints=(name,),
            op_index=self.counts.ops.total(),
            engine=index,
            transition=Transition(last, events, last, When.OP, system.reference),
            history=moments,
            error=error,
            frames=() if isinstance(error, DrainStuck) else code.frames_of(error),
            op=self.ops[-1],
            ops=tuple(self.ops),
        )
