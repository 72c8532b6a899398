"""The deepest level of any engine: after each step, the whole state is captured and every invariant is checked."""

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from swarden.harness.core.driver import Moment
from swarden.harness.core.progress import IdleSteps
from swarden.harness.strict.live import Evidence, Handlers, Live
from swarden.invariants.catalog import Catalog, Tally, catalog_of
from swarden.invariants.events import CHECKED, Launched, StepBegan, StepEnded, Submitted
from swarden.invariants.laws.memory.moves import padding_unit_is_never_moved, units_move_only_by_their_owner
from swarden.invariants.transition import Transition, When
from swarden.invariants.view import Snapshot
from swarden.invariants.violation import Violation

MAX_MOMENTS = 256  # kept for the history of a violation
AUDITED = frozenset({padding_unit_is_never_moved, units_move_only_by_their_owner})


def interval_of(live: Live) -> int:
    """The number of steps from one walk over the engine to the next: it grows with its pools of pages."""
    units = sum(pool.capacity for pool in live.pools if pool.unit != "row")
    return 1 if live.units_per_step is None else max(1, units // live.units_per_step)


class Census:
    """Checks the laws and the engine's contracts over each step, and over the client calls between two steps.

    Outputs are not compared.  A step costs a walk over the whole engine, and another one if a client call came before
    it.  With an `interval` above 1, one step in `interval` is checked, and an audit checks every step.
    """

    def __init__(self, live: Live, interval: int = 1) -> None:
        self.interval = interval
        self.tally = Tally()
        self.is_due = False  # a check at the next step, although there is no event
        self._live = live
        catalog = catalog_of(live.contracts)
        not_audited = [law for law in catalog.invariants if law not in AUDITED]
        self._catalog = catalog if self.interval == 1 else Catalog(not_audited)
        self._events: list[NamedTuple] = []
        self._is_checked = self.interval == 1  # the step in progress
        self._idle_steps = IdleSteps()
        self._num_steps = 0
        self._history: deque[Moment] = deque(maxlen=MAX_MOMENTS)
        self._last_healthy: Snapshot | None = None
        self.last = live.capture(0, None)  # the state at the last check

    @property
    def handlers(self) -> Handlers:
        return dict.fromkeys((*CHECKED, *self._live.moves), self.note) | {
            Submitted: self.submitted,
            Launched: self.launched,
            StepBegan: self.step_began,
            StepEnded: self.step_ended,
        }

    def note(self, event: NamedTuple) -> None:
        """Note an event for the next check."""
        if self._is_checked:
            self._events.append(event)

    def submitted(self, _event: Submitted) -> None:
        """Note that a request arrived; a submission has no other event."""
        self.is_due = True

    def launched(self, event: Launched) -> None:
        """Note a launch, also in a step that is not checked: it shows that the engine makes progress."""
        self.note(event)
        if not self._is_checked:
            self._idle_steps.restart()

    def step_began(self, _event: StepBegan) -> Sequence[Violation]:
        is_due, self.is_due = self.is_due or self._live.has_inputs(), False
        violations = self._check(When.OP) if self.interval == 1 and (self._events or is_due) else ()
        self._num_steps += 1
        if self.interval > 1:
            self._is_checked = not self._num_steps % self.interval
            if self._is_checked:
                self.last = self._live.capture(self._num_steps, self.last)
        return violations

    def step_ended(self, _event: StepEnded) -> Sequence[Violation]:
        if not self._is_checked:
            return ()
        if self._live.needs_no_pass():
            self._idle_steps.restart()
        elif not self._live.is_paused():
            self._idle_steps.note(self._events)
        violations = self._check(When.STEP)
        self._is_checked = self.interval == 1
        return violations

    def evidence(self) -> Evidence:
        return Evidence(list(self._history), self.last.pools)

    def _check(self, when: When) -> Sequence[Violation]:
        before, after = self.last, self._live.capture(self._num_steps, self.last)
        events = self._live.owned(self._events, before, after)
        self.last, self._events = after, []
        self._history.append(Moment(0, after.step, events))
        steps = self._idle_steps.count
        change = Transition(before, events, after, when, steps_without_forward=steps, checked=self._last_healthy)
        violations = self._catalog.check(change, self.tally)
        self._last_healthy = None if violations else after
        return violations
