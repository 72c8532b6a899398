"""The state that both sides of a pair share: the link, the order of transfer ids, and the peer timer."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import NamedTuple

from swarden.engine_under_test.config import EngineConfig
from swarden.engine_under_test.disaggregation.payload import request_terms, terms_of
from swarden.engine_under_test.errors import ConfigError
from swarden.engine_under_test.messages import Close, Message
from swarden.engine_under_test.pools.memory import KVMemory
from swarden.engine_under_test.ports import Link, Observer
from swarden.engine_under_test.request import Request
from swarden.engine_under_test.scheduler.other_side import OtherSide
from swarden.engine_under_test.scheduler.scheduler import Scheduler
from swarden.invariants.events import Event

UNKNOWN_TRANSFER = "the transfer is not known here any more"  # the reason if it is no longer kept
MAX_CLOSED = 4096  # closed transfers with a kept reason
MAX_REASON = 1000  # characters that are sent


class LinkedTo(NamedTuple):
    """The link of a side, the observer of its engine, and the model, which both sides must have."""

    link: Link
    observer: Observer | None
    model: str
    vocab_size: int | None


@dataclass(slots=True)
class PeerTimer:
    """The peer timeout of one transfer.  `first_unanswered_ms` is when the oldest unanswered message was sent."""

    last_received_ms: int
    last_sent_ms: int
    first_unanswered_ms: int | None = None

    def received(self, now_ms: int) -> None:
        self.last_received_ms, self.first_unanswered_ms = now_ms, None

    def sent(self, now_ms: int) -> None:
        """Record that a message was sent that the peer must answer."""
        self.last_sent_ms = now_ms
        if self.first_unanswered_ms is None:
            self.first_unanswered_ms = now_ms

    def idle_ms(self, now_ms: int) -> int:
        """The time since the peer's last message."""
        return now_ms - self.last_received_ms

    def is_expired(self, now_ms: int, *, answered_ms: int, timeout_ms: int) -> bool:
        """Has the peer timed out?  It has answered all messages that were sent before `answered_ms`.

        A side that was busy sends late.  So the peer has at least half of the timeout to answer its first message.
        """
        unanswered_ms = 0 if self.first_unanswered_ms is None else answered_ms - self.first_unanswered_ms
        return self.idle_ms(now_ms) >= timeout_ms and unanswered_ms >= timeout_ms // 2


class Side(OtherSide):
    """One end of a link.

    `_close_reasons` has the reasons of the transfers that were closed last.  A Close may be lost, or may arrive before
    the peer knows the transfer; it is sent again when the peer sends another message about that transfer.
    """

    def __init__(self, config: EngineConfig, memory: KVMemory, scheduler: Scheduler, linked_to: LinkedTo) -> None:
        self._config = config
        self._memory = memory
        self._scheduler = scheduler
        self._linked_to = linked_to
        self._link, self._observer = linked_to.link, linked_to.observer
        self._close_reasons: dict[int, str] = {}
        self._now_ms = self._answered_ms = 0
        self._is_link_clear = True  # was the send buffer empty when this step began
        frame_bytes = config.link_frame_bytes
        for pool in memory.store.pools:
            if (page_bytes := memory.store.page_bytes(pool)) > frame_bytes:
                raise ConfigError(f"link_frame_bytes: {frame_bytes}; want at least {page_bytes}, a page of pool {pool}")
        self._terms = f"model {linked_to.model}, {terms_of(memory)}, at most {frame_bytes} bytes a message"

    @abstractmethod
    def _why_rejected(self, message: Message) -> str | None:
        """The rule that a message breaks; None where it breaks none.  Changes nothing."""

    @abstractmethod
    def _receive(self, message: Message) -> None:
        """Handle a message that breaks no rule."""

    def _receive_all(self, now_ms: int) -> None:
        """Handle the messages that arrived since the last step; the state of the link is read before them.

        After a message that breaks a rule, the other messages are dropped with the connection, but no transfer ends.
        """
        self._now_ms, self._is_link_clear = now_ms, self._link.is_clear
        self._answered_ms = now_ms - self._link.lag_ms
        for message in self._link.receive():
            if (reason := self._why_rejected(message)) is not None:
                self._link.reject(f"{type(message).__name__} of transfer {message.transfer_id}: {reason}")
                return
            self._receive(message)

    def _close(self, transfer_id: int, reason: str = "") -> None:
        """Send a Close: the transfer is complete, or has failed for this reason."""
        reason = self._close_reasons[transfer_id] = reason[:MAX_REASON]
        if len(self._close_reasons) > MAX_CLOSED:
            del self._close_reasons[next(iter(self._close_reasons))]
        self._link.send(Close(transfer_id, reason))

    def _retransmit_close(self, transfer_id: int) -> None:
        """Answer a message about a transfer that is closed here."""
        self._link.send(Close(transfer_id, self._close_reasons.get(transfer_id, UNKNOWN_TRANSFER)))

    def _terms_of(self, request: Request) -> str:
        return f"{self._terms}; {request_terms(request)}"

    def _is_expired(self, timer: PeerTimer) -> bool:
        return timer.is_expired(self._now_ms, answered_ms=self._answered_ms, timeout_ms=self._config.link_timeout_ms)

    def _notice(self, event: Event) -> None:
        if self._observer:
            self._observer.notice(event)
