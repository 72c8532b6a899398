"""The deepest level: after each step the whole state is walked and every invariant judges it."""

from collections import deque
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from engine_under_test.engine import Engine
from engine_under_test.events import StepBegan, StepEnded, Submitted
from harness.components.translation import TRANSLATION, translated
from harness.core.driver import Moment
from harness.core.progress import IdleSteps
from harness.engines.own.capture import EngineCapture, awaits_another
from harness.strict.check import Evidence, Hearer
from harness.strict.outside import Outside
from invariants.catalog import ALL, Tally
from invariants.transition import Transition, When
from invariants.view import Snapshot
from invariants.violation import Violation

MOST_MOMENTS = 256  # that a history can show


class Census:
    """All invariants over each step, and over what was asked for between two; those that need a reference have none.

    Costs a walk over the whole engine, twice a step where something was asked for.
    """

    def __init__(self) -> None:
        self.tally: Tally = {}
        self._events: list[NamedTuple] = []
        self._history: deque[Moment] = deque(maxlen=MOST_MOMENTS)
        self._num_steps = 0
        self._idle_steps = IdleSteps()
        self._was_asked = False
        self._is_right = False

    def attach(self, engine: Engine, outside: Outside) -> Mapping[type, Hearer]:
        self._engine, self._outside = engine, outside
        self._pools = [ledger.name for ledger in engine.memory.ledgers.ledgers]
        self._capture = EngineCapture(engine)
        self._last = self._look()
        hears = dict.fromkeys(TRANSLATION, self._note) | {Submitted: self.submitted}
        return hears | {StepBegan: self.step_began, StepEnded: self.step_ended}

    def submitted(self, _event: Submitted) -> None:
        """Somebody waits who did not before; no other event says so."""
        self._was_asked = True

    def step_began(self, _event: StepBegan) -> Sequence[Violation]:
        found = self._judge(When.OP) if self._events or self._was_asked else ()
        self._num_steps += 1
        self._was_asked = False
        return found

    def step_ended(self, _event: StepEnded) -> Sequence[Violation]:
        if not self._engine.has_work or awaits_another(self._engine):
            self._idle_steps.restart()
        elif not self._engine.scheduler.is_paused:
            self._idle_steps.note(self._events)
        return self._judge(When.STEP)

    def evidence(self) -> Evidence:
        return Evidence(list(self._history), self._last.pools)

    def _note(self, event: NamedTuple) -> None:
        self._events.append(translated(event))

    def _judge(self, when: When) -> Sequence[Violation]:
        events, self._events = self._events, []
        before, self._last = self._last, self._look()
        self._history.append(Moment(0, self._num_steps, events))
        change = Transition(
            before,
            events,
            self._last,
            when,
            steps_without_forward=self._idle_steps.count,
            before_is_checked=self._is_right,
        )
        violations = ALL.check(change, self.tally)
        self._is_right = not violations
        return violations

    def _look(self) -> Snapshot:
        outside = {pool: self._outside.holdings(pool) for pool in self._pools}
        return self._capture.capture(step=self._num_steps, outside=outside)
