"""The deepest level: after each turn, the whole state is captured and all laws are checked."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import invariants.events as seen
from harness.core.progress import IdleSteps
from harness.engines.sglang.adapter import REPORTED
from harness.engines.sglang.attached.live import UnknownScheduler
from harness.engines.sglang.boot import Release
from harness.engines.sglang.capture import SglangCapture
from harness.engines.sglang.config import SglangConfig
from harness.engines.sglang.forward import Pass, entries_of
from harness.engines.sglang.moves import with_owners
from harness.engines.sglang.requests import Requests
from harness.engines.sglang.scheduler import Built
from harness.strict.evidence import Evidence
from harness.strict.transitions import Transitions
from invariants.catalog import catalog_of
from invariants.transition import When
from invariants.view import Snapshot
from invariants.violation import Violation

OF_THE_STAND_INS = frozenset(kind.__name__ for kind in (seen.Fired, seen.Read, seen.Rejected, seen.Written))
UNREPORTED = seen.ALL_EVENTS - REPORTED | OF_THE_STAND_INS


class Census:
    """Checks all laws over each turn, and over the calls between two turns; there are no contracts.

    The cost is a walk over the tree and over all units of the pools.
    """

    def __init__(self, release: Release, config: SglangConfig, built: Built, requests: Requests) -> None:
        self._built, self._requests = built, requests
        self._in_flight: list[Pass] = []
        self._events: list[NamedTuple] = []
        self._num_turns = self._num_launches = 0
        self._idle_turns = IdleSteps()
        self._capture = SglangCapture(release, config, built, UNREPORTED, None)
        try:
            self._transitions = Transitions(catalog_of(frozenset()), self._take_snapshot())
        except NotImplementedError as error:
            remedy = "set SGLANG_UNIFIED_RADIX_TREE_CORE_BACKEND=python, or choose level audit"
            raise UnknownScheduler(f"its tree shows no nodes; {remedy}") from error

    def notice(self, event: NamedTuple) -> None:
        self._events.append(event)

    def launched(self, batch: Any) -> None:
        """A pass is about to be launched."""
        self._num_launches += 1
        one = Pass(self._num_launches, entries_of(batch, self._built.memory), [])
        self._in_flight.append(one)
        self.notice(seen.Launched(one.launch, tuple([entry.ids for entry in one.entries])))

    def completed(self) -> None:
        """The result of the oldest pass in flight is about to be processed."""
        if self._in_flight:
            done = self._in_flight.pop(0)
            self.notice(seen.Completed(done.launch))
            for entry in done.entries:
                if not entry.is_held_by(self._requests.unfinished):
                    self.notice(seen.Discarded(done.launch, entry.request.id))

    def inputs_taken(self) -> Sequence[Violation]:
        return self._check(When.OP)

    def turn_ended(self) -> Sequence[Violation]:
        self._num_turns += 1
        if not self._requests:
            self._idle_turns.restart()
        elif not self._built.scheduler._engine_paused:
            self._idle_turns.note(self._events)
        return self._check(When.STEP)

    def evidence(self) -> Evidence:
        return self._transitions.evidence()

    def _check(self, when: When) -> Sequence[Violation]:
        events, self._events = self._events, []
        after = self._take_snapshot()
        owned = [event for _, event in with_owners(events, self._transitions.last, after)]
        return self._transitions.check(when, owned, after, steps_without_forward=self._idle_turns.count)

    def _take_snapshot(self) -> Snapshot:
        return self._capture.capture(self._num_turns, self._requests.unfinished, self._in_flight)
