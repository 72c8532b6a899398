"""Systems that are linked: the two sides of a prefill/decode pair, to which each submission goes."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from swarden.harness.core.port import LINKED_MS_PER_STEP, EnginePort, Submission
from swarden.harness.core.system import EngineSystem


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
