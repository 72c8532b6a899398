"""The census of large pools: the owner of each moved unit at every step, the whole state at one step in a number."""

from collections.abc import Mapping, Sequence

from swarden.engine_under_test.engine import Engine
from swarden.harness.strict.audit import Audit
from swarden.harness.strict.census import Census
from swarden.harness.strict.check import Handler
from swarden.harness.strict.evidence import Evidence
from swarden.harness.strict.outside import Outside
from swarden.invariants.catalog import ALL, Catalog
from swarden.invariants.events import Event, Launched, StepBegan, StepEnded
from swarden.invariants.laws.memory.moves import padding_unit_is_never_moved, units_move_only_by_their_owner
from swarden.invariants.violation import Violation

UNITS_PER_STEP = 1024  # walked on average
AUDITED = frozenset({padding_unit_is_never_moved, units_move_only_by_their_owner})
NOT_AUDITED = Catalog(one for one in ALL.invariants if one not in AUDITED)


def interval_of(engine: Engine, units_per_step: int = UNITS_PER_STEP) -> int:
    """The number of steps from one walk over the engine to the next: it grows with the pools of the device and host."""
    memory = engine.memory
    ledgers = [*memory.ledgers.ledgers, *(memory.host.ledgers if memory.host is not None else ())]
    return max(1, sum(ledger.capacity for ledger in ledgers) // units_per_step)


class SampledCensus:
    """A census of one step in `interval`, and an audit of every step.

    Small pools have a census of every step, and need no audit.
    """

    def __init__(self, units_per_step: int = UNITS_PER_STEP) -> None:
        self.interval = 1
        self._units_per_step = units_per_step
        self._audit = Audit()
        self._num_steps = 0
        self._is_sampled = False  # a sampled step is in progress

    def attach(self, engine: Engine, outside: Outside) -> Mapping[type, Handler]:
        self.interval = interval_of(engine, self._units_per_step)
        self._census = Census(ALL if self.interval == 1 else NOT_AUDITED)
        of_census = self._census.attach(engine, outside)
        if self.interval == 1:
            return of_census
        sampled = {kind: self._if_sampled(handler) for kind, handler in of_census.items()}
        sampled |= {StepBegan: self._step_began, StepEnded: self._step_ended}
        sampled[Launched] = _in_turn(self._launched, sampled[Launched])
        of_audit = self._audit.attach(engine, outside)
        return sampled | {
            kind: _in_turn(handler, sampled[kind]) if kind in sampled else handler for kind, handler in of_audit.items()
        }

    def evidence(self) -> Evidence:
        return self._census.evidence() if self.interval == 1 else self._audit.evidence()

    def _if_sampled(self, handler: Handler) -> Handler:
        def handle(event: Event) -> Sequence[Violation] | None:
            return handler(event) if self._is_sampled else None

        return handle

    def _step_began(self, _event: StepBegan) -> None:
        self._num_steps += 1
        self._is_sampled = not self._num_steps % self.interval
        if self._is_sampled:
            self._census.start_over(self._num_steps)

    def _step_ended(self, event: StepEnded) -> Sequence[Violation]:
        found = self._census.step_ended(event) if self._is_sampled else ()
        self._is_sampled = False
        return found

    def _launched(self, _event: Launched) -> None:
        """Count the launch of a step without a census, too: the engine makes progress."""
        self._census.idle_steps.restart()


def _in_turn(first: Handler, second: Handler) -> Handler:
    """One handler for two; both may find violations."""

    def handle(event: Event) -> Sequence[Violation]:
        return [*(first(event) or ()), *(second(event) or ())]

    return handle
