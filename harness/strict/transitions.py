"""The check of one engine's transitions, with the newest ones as history."""

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from swarden.harness.core.driver import Moment
from swarden.harness.strict.evidence import Evidence
from swarden.invariants.catalog import Catalog, Tally
from swarden.invariants.transition import Transition, When
from swarden.invariants.view import Snapshot
from swarden.invariants.violation import Violation

MAX_MOMENTS = 256  # kept for the history of a violation


class Transitions:
    """Checks each transition from the state after the one before. There is no reference."""

    def __init__(self, catalog: Catalog, first: Snapshot) -> None:
        self.tally = Tally()
        self.last = first
        self._catalog = catalog
        self._history: deque[Moment] = deque(maxlen=MAX_MOMENTS)
        self._checked: Snapshot | None = None

    def start_over(self, first: Snapshot) -> None:
        """Check the next transition from another state."""
        self.last = first

    def check(
        self, when: When, events: Sequence[NamedTuple], after: Snapshot, *, steps_without_forward: int = 0
    ) -> Sequence[Violation]:
        before, self.last = self.last, after
        self._history.append(Moment(0, after.step, events))
        change = Transition(
            before,
            events,
            after,
            when,
            steps_without_forward=steps_without_forward,
            checked=self._checked,
        )
        violations = self._catalog.check(change, self.tally)
        self._checked = None if violations else after
        return violations

    def evidence(self) -> Evidence:
        return Evidence(list(self._history), self.last.pools)
