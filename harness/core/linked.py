"""Systems that are linked: the two sides of a prefill/decode pair, to which each submission goes."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from swarden.harness.core.event_log import EventLog
from swarden.harness.core.ops import Abort, Op, Submit
from swarden.harness.core.port import LINKED_MS_PER_STEP, EnginePort, Submission
from swarden.harness.core.system import EngineSystem, System
from swarden.invariants.view import Snapshot


class LinkedPort(EnginePort, Protocol):
    """One side of a pair."""

    def awaits_another(self) -> bool:
        """Whether this side can only wait for the other side."""


class LinkedSystem(EngineSystem):
    """One side of a pair.

    A submission to either side goes to the sides of its way (`way_of`): both, the prefill side first, if nothing else
    is said.

    Each step advances the clock, so that lost messages are retransmitted.  `patience` is the number of steps until a
    side gives up the other one.
    """

    def __init__(self, port: LinkedPort, sides: "list[LinkedSystem]", *, patience: int) -> None:
        super().__init__(port)
        self._patience = patience
        self._side = port
        self._sides = sides
        self._num_transfers = 0

    @property
    def drain_bound(self) -> int:
        """The maximum number of steps of a drain, with the time to retransmit lost messages or to time out."""
        return super().drain_bound + self._patience

    def take_events(self) -> list[NamedTuple]:
        events = super().take_events()
        if self._side.awaits_another():
            self._idle_steps.restart()
        return events

    def prefill_of(self, submission: Submission) -> Submission:
        """The part of a request that the prefill side serves: at most one output."""
        return submission._replace(max_new_tokens=min(1, submission.max_new_tokens))

    def way_of(self, submission: Submission) -> "Sequence[LinkedSystem]":
        """The sides that serve a submission to this one, in this order; the last one answers it in full."""
        return self._sides

    def _send(self, submission: Submission) -> int:
        first = self._sides[0]
        first._num_transfers += 1
        submission = submission._replace(transfer_id=first._num_transfers)
        *before, last = way = self.way_of(submission)
        sent = [EngineSystem._send(side, side.prefill_of(submission)) for side in before]
        return [*sent, EngineSystem._send(last, submission)][way.index(self)]

    def _step(self) -> bool:
        self.port.advance_clock(LINKED_MS_PER_STEP)
        return super()._step()


def joined(systems: Sequence[System], ops: Sequence[type[Op]]) -> System:
    """The linked sides of a pair as one system, or the only system; `ops` are the ops of its machine."""
    return JoinedSystem(systems, ops) if len(systems) > 1 else systems[0]


class JoinedSystem(System):
    """The sides of a pair as one system, for a client that knows one engine; its outputs are those of the last side.

    Clients submit to the last side, and abort there; each other op goes to both sides.  An op of another machine than
    the pair's is a no-op.
    """

    def __init__(self, sides: Sequence[System], ops: Sequence[type[Op]]) -> None:
        self._sides, self._last, self._ops = sides, sides[-1], tuple(ops)
        self.reference = self._last.reference

    @property
    def steps_without_forward(self) -> int:
        return min(side.steps_without_forward for side in self._sides)

    @property
    def log(self) -> EventLog:
        return self._last.log

    def do(self, op: Op) -> bool:
        if not isinstance(op, self._ops):
            return False
        results = [side.do(op) for side in ([self._last] if isinstance(op, Submit | Abort) else self._sides)]
        return any(results)

    @property
    def has_work(self) -> bool:
        return any(side.has_work for side in self._sides)

    def heal(self) -> None:
        for side in self._sides:
            side.heal()

    def clear(self) -> None:
        for side in self._sides:
            side.clear()

    @property
    def drain_bound(self) -> int:
        return max(side.drain_bound for side in self._sides)

    def capture(self) -> Snapshot:
        return [side.capture() for side in self._sides][-1]

    def take_events(self) -> list[NamedTuple]:
        return [event for side in self._sides for event in side.take_events()]
