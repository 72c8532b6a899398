"""The deepest level: after each step, the whole state is captured and every invariant is checked."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from swarden.engine_under_test.engine import Engine
from swarden.harness.core.progress import IdleSteps
from swarden.harness.engines.own.capture import EngineCapture, awaits_another
from swarden.harness.strict.check import Handler
from swarden.harness.strict.evidence import Evidence
from swarden.harness.strict.outside import Outside
from swarden.harness.strict.transitions import Transitions
from swarden.invariants.catalog import ALL, Catalog, Tally
from swarden.invariants.events import CHECKED, StepBegan, StepEnded, Submitted
from swarden.invariants.transition import When
from swarden.invariants.view import Snapshot
from swarden.invariants.violation import Violation


class Census:
    """Checks the invariants of a catalogue over each step, and over the client calls between two steps.

    There is no reference, so no output is compared.  The cost is a walk over the whole engine each step, and a second
    walk if a client call came before the step.
    """

    def __init__(self, catalog: Catalog = ALL) -> None:
        self._catalog = catalog
        self._events: list[NamedTuple] = []
        self._num_steps = 0
        self.idle_steps = IdleSteps()
        self.is_due = False  # a check at the next step, although there is no event

    @property
    def tally(self) -> Tally:
        return self._transitions.tally

    @property
    def last(self) -> Snapshot:
        """The state at the last check."""
        return self._transitions.last

    def note(self, event: NamedTuple) -> None:
        """Note an event for the next check."""
        self._events.append(event)

    def attach(self, engine: Engine, outside: Outside) -> Mapping[type, Handler]:
        self._engine, self._outside = engine, outside
        self._pools = [ledger.name for ledger in engine.memory.ledgers.ledgers]
        self._capture = EngineCapture(engine)
        self._transitions = Transitions(self._catalog, self._take_snapshot())
        return dict.fromkeys(CHECKED, self.note) | {
            Submitted: self.submitted,
            StepBegan: self.step_began,
            StepEnded: self.step_ended,
        }

    def start_over(self, num_steps: int) -> None:
        """Take the present state, unchecked, as the one before step `num_steps`."""
        self._num_steps = num_steps
        self._events.clear()
        self._transitions.start_over(self._take_snapshot())

    def submitted(self, _event: Submitted) -> None:
        """Note that a request arrived; a submission has no other event."""
        self.is_due = True

    def step_began(self, _event: StepBegan) -> Sequence[Violation]:
        found = self._check(When.OP) if self._events or self.is_due else ()
        self._num_steps += 1
        self.is_due = False
        return found

    def step_ended(self, _event: StepEnded) -> Sequence[Violation]:
        if not self._engine.has_work or awaits_another(self._engine):
            self.idle_steps.restart()
        elif not self._engine.scheduler.is_paused:
            self.idle_steps.note(self._events)
        return self._check(When.STEP)

    def evidence(self) -> Evidence:
        return self._transitions.evidence()

    def _check(self, when: When) -> Sequence[Violation]:
        events, self._events = self._events, []
        after = self._take_snapshot()
        return self._transitions.check(when, events, after, steps_without_forward=self.idle_steps.count)

    def _take_snapshot(self) -> Snapshot:
        outside = {pool: self._outside.holdings(pool) for pool in self._pools}
        return self._capture.capture(step=self._num_steps, outside=outside)
