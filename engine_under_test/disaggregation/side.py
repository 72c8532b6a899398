"""The state that both sides of a pair share: the link, the order of transfer ids, and the peer timer."""

from dataclasses import dataclass

from engine_under_test.config import EngineConfig
from engine_under_test.disaggregation.payload import request_terms, terms_of
from engine_under_test.errors import EngineError
from engine_under_test.events import Event
from engine_under_test.messages import Close, Message
from engine_under_test.pools.memory import KVMemory
from engine_under_test.ports import Link, Observer
from engine_under_test.request import Request
from engine_under_test.scheduler.other_side import OtherSide
from engine_under_test.scheduler.scheduler import Scheduler

UNKNOWN_TRANSFER = "the transfer is not known here any more"  # the reason if it is no longer kept
MAX_CLOSED = 4096  # closed transfers with a kept reason
LinkedTo = tuple[Link, Observer | None]


@dataclass(slots=True)
class PeerTimer:
    """The peer timeout of one transfer.  `first_unanswered_ms` is when the oldest unanswered message was sent."""

    last_received_ms: int
    last_sent_ms: int
    first_unanswered_ms: int | None = None

    def received(self, now_ms: int) -> None:
        self.last_received_ms, self.first_unanswered_ms = now_ms, None

    def sent(self, now_ms: int) -> None:
        """A message was sent that the peer must answer."""
        self.last_sent_ms = now_ms
        if self.first_unanswered_ms is None:
            self.first_unanswered_ms = now_ms

    def idle_ms(self, now_ms: int) -> int:
        """The time since the peer's last message."""
        return now_ms - self.last_received_ms

    def is_expired(self, now_ms: int, *, timeout_ms: int) -> bool:
        """Has the peer timed out?

        A side that was busy sends late.  So the peer has at least half of the timeout to answer its first message.
        """
        unanswered_ms = 0 if self.first_unanswered_ms is None else now_ms - self.first_unanswered_ms
        return self.idle_ms(now_ms) >= timeout_ms and unanswered_ms >= timeout_ms // 2


class Side(OtherSide):
    """One end of a link.  `_last_transfer_id` is the highest id that was accepted or rejected here.

    `_close_reasons` has the reasons of the transfers that were closed last.  A Close may be lost, or may arrive before
    the peer knows the transfer; it is sent again when the peer sends another message about that transfer.
    """

    def __init__(self, config: EngineConfig, memory: KVMemory, scheduler: Scheduler, linked_to: LinkedTo) -> None:
        self._config = config
        self._memory = memory
        self._scheduler = scheduler
        self._link, self._observer = linked_to
        self._last_transfer_id = 0
        self._close_reasons: dict[int, str] = {}
        self._now_ms = 0
        self._is_link_clear = True  # was the send buffer empty when this step began
        self._terms = terms_of(memory)

    def check_transfer_id(self, transfer_id: int) -> None:
        if transfer_id <= self._last_transfer_id:
            raise EngineError(
                f"transfer {transfer_id}: the last id was {self._last_transfer_id}; give each request a higher one"
            )

    def _begin_step(self, now_ms: int) -> list[Message]:
        """The messages that arrived since the last step; the state of the send buffer is read before them."""
        self._now_ms, self._is_link_clear = now_ms, self._link.is_clear
        return self._link.receive()

    def _close(self, transfer_id: int, reason: str = "") -> None:
        """Send a Close: the transfer is complete, or has failed for this reason."""
        self._close_reasons[transfer_id] = reason
        if len(self._close_reasons) > MAX_CLOSED:
            del self._close_reasons[next(iter(self._close_reasons))]
        self._link.send(Close(transfer_id, reason))

    def _retransmit_close(self, transfer_id: int) -> None:
        """Answer a message about a transfer that is closed here."""
        self._link.send(Close(transfer_id, self._close_reasons.get(transfer_id, UNKNOWN_TRANSFER)))

    def _terms_of(self, request: Request) -> str:
        return f"{self._terms}; {request_terms(request)}"

    def _notice(self, event: Event) -> None:
        if self._observer:
            self._observer.notice(event)
