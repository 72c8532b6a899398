"""The levels of the check of a running server, without what each engine adds."""

from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple

from swarden.harness.core.driver import Moment
from swarden.harness.core.progress import IdleSteps
from swarden.harness.strict.evidence import Evidence
from swarden.harness.strict.owners import OwnerTable, misplaced
from swarden.harness.strict.transitions import Transitions
from swarden.invariants.catalog import catalog_of
from swarden.invariants.events import Owner
from swarden.invariants.laws.memory.moves import Move
from swarden.invariants.reuse import sharing
from swarden.invariants.transition import When
from swarden.invariants.view import Snapshot
from swarden.invariants.violation import Violation

SUMS, AUDIT, CENSUS = "sums", "audit", "census"
MAX_MOVES = 20_000  # kept for the history of a violation


class AttachedLevel:
    """A level. It gets the events since the call before, and returns the violations that it finds."""

    def launched(self, launched: Any) -> Sequence[NamedTuple]:
        """The scheduler launches what it has made for a pass. Returns the events of the pass."""
        return ()

    def completed(self) -> Sequence[NamedTuple]:
        """The result of the oldest pass in flight is about to be processed. Returns its events."""
        return ()

    def inputs_taken(self, events: Sequence[NamedTuple]) -> Sequence[Violation]:
        return ()

    def turn_ended(self, events: Sequence[NamedTuple]) -> Sequence[Violation]:
        raise NotImplementedError

    def evidence(self) -> Evidence:
        return Evidence((), ())


class Audit(AttachedLevel):
    """Follows the moves of the units, and compares their owners with what the requests hold after each turn.

    The sums are checked, too.
    """

    def __init__(self, sums: AttachedLevel) -> None:
        self._sums = sums
        self._moves: deque[Moment] = deque(maxlen=MAX_MOVES)
        self._found: list[Violation] = []
        self._turn = 1

    def inputs_taken(self, events: Sequence[NamedTuple]) -> Sequence[Violation]:
        """Follow the moves; what is wrong with them is returned at the end of the turn."""
        for event in events:
            self._follow(event)
        return ()

    def turn_ended(self, events: Sequence[NamedTuple]) -> Sequence[Violation]:
        self.inputs_taken(events)
        self._compare()
        found, self._found = [*self._found, *self._sums.turn_ended(())], []
        self._turn += 1
        return found

    def evidence(self) -> Evidence:
        return Evidence(list(self._moves), [table.view(protected=self._protected(table)) for table in self._tables])

    @property
    def _tables(self) -> Sequence[OwnerTable]:
        raise NotImplementedError

    def _protected(self, table: OwnerTable) -> int:
        """The units of a pool that the cache has locked."""
        return 0

    def _follow(self, event: NamedTuple) -> None:
        raise NotImplementedError

    def _compare(self) -> None:
        """Add what is wrong with the units that the requests hold."""
        raise NotImplementedError

    def _note(self, event: NamedTuple) -> None:
        self._moves.append(Moment(0, self._turn, [event]))

    def _move(self, event: Move, table: OwnerTable, from_owner: Owner, to_owner: Owner) -> None:
        self._note(event)
        self._found += misplaced(event, table, table.move(event.units, from_owner, to_owner))


class Census(AttachedLevel):
    """Checks all laws over each turn, and over the calls between two turns; there are no contracts.

    The cost is a walk over all units of the pools.
    """

    def __init__(self) -> None:
        self._num_turns = 0
        self._idle_turns = IdleSteps()
        self._transitions = Transitions(catalog_of(frozenset()), self._take_snapshot())

    def inputs_taken(self, events: Sequence[NamedTuple]) -> Sequence[Violation]:
        return self._check(When.OP, events)

    def turn_ended(self, events: Sequence[NamedTuple]) -> Sequence[Violation]:
        self._num_turns += 1
        if not self._has_requests:
            self._idle_turns.restart()
        elif not self._is_paused:
            self._idle_turns.note(events)
        return self._check(When.STEP, events)

    def evidence(self) -> Evidence:
        return self._transitions.evidence()

    @property
    def _has_requests(self) -> bool:
        raise NotImplementedError

    @property
    def _is_paused(self) -> bool:
        raise NotImplementedError

    def _take_snapshot(self) -> Snapshot:
        raise NotImplementedError

    def _with_owners(self, events: Sequence[NamedTuple], after: Snapshot) -> Sequence[NamedTuple]:
        """The events, with the owners of moved units where the engine does not name them."""
        return events

    def _check(self, when: When, events: Sequence[NamedTuple]) -> Sequence[Violation]:
        after = sharing(self._transitions.last, self._take_snapshot())
        owned = self._with_owners(events, after)
        return self._transitions.check(when, owned, after, steps_without_forward=self._idle_turns.count)
