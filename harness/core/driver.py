"""The driver: the one way in which ops reach an engine and transitions reach the invariants."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from harness.core.digest import Digest
from harness.core.fingerprint import fingerprint_of_error, fingerprints
from harness.core.ops import Drain, Op, Step, name_of
from harness.core.origins import UNKNOWN_CODE, EngineCode
from harness.core.system import System
from invariants.catalog import ALL, Catalog, Tally
from invariants.transition import Transition, When
from invariants.view import Snapshot
from invariants.violation import Violation

STUCK = "stuck/drain"

ValueT = TypeVar("ValueT")


class Moment(NamedTuple):
    """The events of one transition of one system, up to engine step `step`.

    `origins` has a place in the engine's code for each of the first events; () unless the run is traced.
    """

    system: int
    step: int
    events: Sequence[NamedTuple]
    origins: Sequence[str] = ()


@dataclass
class History:
    """The transitions of a run; `system` is the one that acts now, or acted last."""

    moments: list[Moment] = field(default_factory=list)
    system: int = 0


@dataclass(frozen=True)
class Failure:
    """The first failure of a run: its fingerprints, the op and the engine that failed, and the evidence.

    `error` is set where the engine raised, or was stuck; `frames` are its places in the engine's code.  `transition`
    then ends in the state before it.
    `history` has the transitions of all engines, of one that raised with the events up to there.
    """

    fingerprints: tuple[str, ...]
    op_index: int
    engine: int
    transition: Transition
    history: Sequence[Moment]
    violations: Sequence[Violation] = ()
    error: Exception | None = None
    frames: Sequence[str] = ()
    op: Op | None = None

    @property
    def fingerprint(self) -> str:
        return self.fingerprints[0]


class Kept(NamedTuple):
    """How much of a run a driver keeps: digests or none, and the last so many moments and ops, or all."""

    digests: bool = True
    moments: int | None = None
    ops: int | None = None


EVERYTHING = Kept()


class Checking(NamedTuple):
    """How a driver looks: by which invariants, at each how-many-th engine step, and where the engine's code is.

    Where `every` is above 1, the ops between steps are not looked at.
    """

    catalog: Catalog = ALL
    every: int = 1
    code: EngineCode = UNKNOWN_CODE


EACH_STEP = Checking()


class EngineRaised(Exception):
    """The engine raised this `error`."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


class DrainStuck(Exception):
    """Requests are unfinished after as many steps as the bound allows."""


@dataclass
class Counts:
    """Counts of one run, by which a campaign earns its green verdict."""

    engine_steps: int = 0
    ops: Counter[str] = field(default_factory=Counter)
    noops: Counter[str] = field(default_factory=Counter)
    tally: Tally = field(default_factory=dict)


class Driver:
    """Applies ops to its systems, one captured and checked transition per step or op, until one fails.

    After a failure every further op is skipped.  `tell` is called with every transition before it is judged.  An error
    of a capture or an invariant is a fault of swarden, and is not caught.
    """

    def __init__(
        self,
        systems: Sequence[System],
        *,
        checking: Checking = EACH_STEP,
        keep: Kept = EVERYTHING,
        tell: Callable[[Transition], None] | None = None,
    ) -> None:
        self.systems = systems
        self.counts = Counts()
        self.ops: list[Op] = []
        self.digests: list[str] = []
        self.failure: Failure | None = None
        self._checking = checking
        self._keep = keep
        self._tell = tell
        self._last = [system.capture() for system in systems]
        self._history = History()
        self._digest = Digest()

    def snapshot(self, system: int = 0) -> Snapshot:
        """The state that was captured last."""
        return self._last[system]

    @property
    def moved(self) -> int:
        """The system that the last transition was of."""
        return self._history.moments[-1].system if self._history.moments else 0

    def apply(self, op: Op) -> None:
        """Note one op, do it, and check the transitions that it makes."""
        if self.failure is not None:
            return
        self.ops.append(op)
        system = self._history.system = op.engine % len(self.systems)
        try:
            worked = self._drain() if isinstance(op, Drain) else self._repeat(system, op)
        except EngineRaised as raised:
            self._fail(raised.error)
            return
        except DrainStuck as stuck:
            self._fail(stuck)
            return
        self.counts.ops[name_of(op)] += 1
        self.counts.noops[name_of(op)] += not worked
        if self._keep.ops is not None and self.failure is None:
            del self.ops[: -self._keep.ops]
        if self._keep.digests and self.failure is None:
            self.digests.append(self._digest.of(self._last if isinstance(op, Drain) else [self._last[system]]))

    def _repeat(self, system: int, op: Op) -> bool:
        worked = False
        for _ in range(op.count if isinstance(op, Step) else 1):
            if self.failure is None:
                worked |= self._advance(system, op)
        return worked

    def _advance(self, index: int, op: Op) -> bool:
        """One step, or one op that is not steps; looked at when it is its turn."""
        system = self.systems[index]
        self._history.system = index
        is_step = isinstance(op, Step)
        self.counts.engine_steps += is_step
        if self._checking.every > 1 and (not is_step or self.counts.engine_steps % self._checking.every):
            worked = self._ask(lambda: system.do(op))
            system.take_events()
            return worked
        return self._transition(index, lambda: system.do(op), When.STEP if is_step else When.OP)

    def _ask(self, act: Callable[[], ValueT]) -> ValueT:
        """The engine's answer; raises EngineRaised from whatever it raises."""
        try:
            return act()
        except Exception as error:  # a finding, which ends the run
            raise EngineRaised(error) from error

    def _transition(self, index: int, act: Callable[[], ValueT], when: When) -> ValueT:
        """The engine's answer; before, events and after go to the invariants."""
        system = self.systems[index]
        self._history.system = index
        before = self._last[index] if self._checking.every == 1 else system.capture()
        answer = self._ask(act)
        after = self._last[index] = system.capture()
        events = system.take_events()
        change = Transition(
            before,
            events,
            after,
            when,
            system.reference,
            system.steps_without_forward,
            before_is_checked=self._checking.every == 1 and self._is_judged(index),
        )
        self._judge(index, change)
        return answer

    def _is_judged(self, index: int) -> bool:
        """Was the state before found right?  Of several engines only the one that was moved last is asked for."""
        return bool(self._history.moments) and self.moved == index

    def _judge(self, index: int, change: Transition) -> None:
        origins = self.systems[index].log.origins
        self._history.moments.append(Moment(index, change.after.step, change.events, origins))
        if self._keep.moments is not None:
            del self._history.moments[: -self._keep.moments]
        if self._tell is not None:
            self._tell(change)
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
            )

    def _drain(self) -> bool:
        """Heal all faults, finish all requests within a bound, clear the caches, and check that every unit is free.

        Linked systems finish together: each makes a step in turn as long as one of them has work.
        """
        for index, system in enumerate(self.systems):
            self._transition(index, system.heal, When.OP)
        bound = left = max(system.drain_bound for system in self.systems)
        while self.failure is None and (busy := self._ask(self._busy)):
            if not left:
                self._history.system = busy[0]
                raise DrainStuck(f"engine {busy[0]}: work left after {bound} steps of drain")
            left -= 1
            for index in busy:
                if self.failure is None:
                    self._advance(index, Step())
        for index, system in enumerate(self.systems):
            if self.failure is None:
                self._transition(index, system.clear, When.QUIESCENT)
        return True

    def _busy(self) -> list[int]:
        """The systems that have work."""
        return [index for index, one in enumerate(self.systems) if one.has_work]

    def _fail(self, error: Exception) -> None:
        """The engine that acted raised an error: of its step only the events since the last capture are known."""
        index, moments, code = self._history.system, self._history.moments, self._checking.code
        system, last = self.systems[index], self._last[index]
        events = system.take_events()
        moments.append(Moment(index, last.step + 1, events, system.log.origins))
        self.failure = Failure(
            fingerprints=(STUCK if isinstance(error, DrainStuck) else fingerprint_of_error(error, code.package),),
            op_index=self.counts.ops.total(),
            engine=index,
            transition=Transition(last, events, last, When.OP, system.reference),
            history=moments,
            error=error,
            frames=() if isinstance(error, DrainStuck) else code.frames_of(error),
            op=self.ops[-1],
        )
