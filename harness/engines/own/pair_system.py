"""A prefill engine and a decode engine as two linked systems."""

from collections.abc import Sequence
from typing import NamedTuple

from engine_under_test.config import EngineConfig
from engine_under_test.disaggregation.link import InProcessLink
from harness.core.port import LINKED_MS_PER_STEP, Submission
from harness.core.system import EngineSystem
from harness.engines.own.adapter import SwardenEngine


class SideSystem(EngineSystem):
    """One side of a pair; a submission to either side goes to both, to the prefill side first.

    The prefill side gets it with at most one output token.  Each step advances the clock, so that lost messages are
    retransmitted.
    """

    def __init__(self, port: SwardenEngine, sides: "list[SideSystem]", *, patience_ms: int) -> None:
        super().__init__(port)
        self._patience_ms = patience_ms
        self._engine = port
        self._sides = sides
        self._num_transfers = 0

    @property
    def drain_bound(self) -> int:
        """Includes the time to retransmit lost messages, or to time out."""
        return super().drain_bound + self._patience_ms // LINKED_MS_PER_STEP

    def take_events(self) -> list[NamedTuple]:
        """Steps in which this side waits for the other side do not count as idle."""
        events = super().take_events()
        if self._engine.awaits_another():
            self._idle_steps.restart()
        return events

    def _send(self, submission: Submission) -> int:
        first = self._sides[0]
        first._num_transfers += 1
        submission = submission._replace(transfer_id=first._num_transfers)
        prompt_alone = submission._replace(max_new_tokens=min(1, submission.max_new_tokens))
        sent = [EngineSystem._send(side, prompt_alone if side is first else submission) for side in self._sides]
        return sent[self._sides.index(self)]

    def _step(self) -> bool:
        self.port.advance_clock(LINKED_MS_PER_STEP)
        return super()._step()


def side_systems(configs: Sequence[EngineConfig]) -> list[SideSystem]:
    """The two linked sides of a pair: prefill, then decode."""
    sides: list[SideSystem] = []
    for config, link in zip(configs, InProcessLink.pair(), strict=True):
        patience_ms = config.link_timeout_ms + config.link_retry_ms
        sides.append(SideSystem(SwardenEngine(config, link=link), sides, patience_ms=patience_ms))
    return sides
