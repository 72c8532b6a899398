"""The prefill side: it sends the KV of computed prompts, and holds the record until the decode side has all of it."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from swarden.engine_under_test import messages
from swarden.engine_under_test.cache.record import KVRecord
from swarden.engine_under_test.config import EngineConfig
from swarden.engine_under_test.disaggregation import payload
from swarden.engine_under_test.disaggregation.rules import why_invitation_is_wrong, why_pages_are_wrong
from swarden.engine_under_test.disaggregation.side import LinkedTo, PeerTimer, Side
from swarden.engine_under_test.pools.memory import KVMemory
from swarden.engine_under_test.request import Ending, Request
from swarden.engine_under_test.scheduler.scheduler import Scheduler
from swarden.engine_under_test.units import handover_owner
from swarden.invariants.events import FinishReason, FreeCause, HandedOver, Invited, LetGo, Sent

ALREADY_COMPLETE = "it has the whole prompt already"  # the reason if the Close of the decode side has none


class PageRange(NamedTuple):
    """Pages of one pool: `num_pages` from page index `first` of a prompt on."""

    pool: str
    first: int
    num_pages: int


@dataclass(slots=True, eq=False)
class Outgoing:
    """A request whose KV goes to the decode side, which has [0, prefix_len) of it.

    The request waits here for an invitation, and is then in the scheduler.  When it has ended there, this side holds
    its record, and starts the peer timer with the next step.
    """

    request: Request
    terms: str  # the page layout and a digest of the prompt, which must be equal on both sides
    timer: PeerTimer
    is_timer_running: bool = True
    prefix_len: int | None = None  # None: it waits for an invitation
    sent: dict[str, int] = field(default_factory=dict)  # by pool: all pages due in [prefix_len, sent) were sent
    unacknowledged: dict[PageRange, None] = field(default_factory=dict)  # pages that were sent
    record: KVRecord | None = None
    end: messages.TransferEnd | None = None

    def sent_len(self, pool: str) -> int:
        """The end of the part of the prompt that the decode side has, or was sent, in a pool."""
        return self.sent.get(pool, self.prefix_len or 0)

    @property
    def awaits_peer(self) -> bool:
        """Must the decode side send the next message?"""
        return self.prefix_len is None or self.record is not None


class PrefillSide(Side):
    """The transfers from the arrival of the request until the decode side closes them."""

    def __init__(self, config: EngineConfig, memory: KVMemory, scheduler: Scheduler, linked_to: LinkedTo) -> None:
        super().__init__(config, memory, scheduler, linked_to)
        self._transfers: dict[int, Outgoing] = {}

    @property
    def requests(self) -> Sequence[Request]:
        return [outgoing.request for outgoing in self._transfers.values() if outgoing.prefix_len is None]

    @property
    def records(self) -> Sequence[KVRecord]:
        return [outgoing.record for outgoing in self._transfers.values() if outgoing.record is not None]

    @property
    def has_work(self) -> bool:
        return bool(self._transfers)

    def add_request(self, request: Request) -> None:
        self.last_transfer_id = max(self.last_transfer_id, request.transfer_id)
        terms, arrival_ms = self._terms_of(request), request.arrival_ms
        self._transfers[request.transfer_id] = Outgoing(request, terms, PeerTimer(arrival_ms, arrival_ms, arrival_ms))
        self._link.send(messages.TransferRequest(request.transfer_id, terms))

    def step(self, now_ms: int) -> None:
        self._receive_all(now_ms)
        for transfer_id, outgoing in list(self._transfers.items()):
            if not outgoing.is_timer_running:  # the timer excludes the last forward pass
                outgoing.is_timer_running, outgoing.timer = True, PeerTimer(now_ms, now_ms, now_ms)
            if not outgoing.awaits_peer:
                continue
            if self._is_expired(outgoing.timer):
                idle_ms = outgoing.timer.idle_ms(now_ms)
                detail = f"no message from the decode side for {idle_ms} ms"
                self._end(transfer_id, Ending(FinishReason.PEER_TIMEOUT, detail))
            elif now_ms - outgoing.timer.last_sent_ms >= self._retry_ms(outgoing):
                self._retransmit(transfer_id, outgoing)

    def published(self, request: Request, record: KVRecord) -> None:
        """Send whole pages that are due in any case once they are computed; others follow when the prompt is done."""
        outgoing = self._transfers[request.transfer_id]
        for pool in self._memory.pools:
            pages = pool.lasting_pages(outgoing.sent_len(pool.name), record.committed_len)
            if pages:
                self._send(outgoing, pool.name, pages)
                outgoing.sent[pool.name] = pages.stop * self._memory.page_size

    def hold_finished(self, request: Request, record: KVRecord) -> bool:
        """Send the remaining pages; the record is held with its row and its lock."""
        outgoing, length = self._transfers[request.transfer_id], record.committed_len
        outgoing.record, outgoing.is_timer_running = record, False
        self._scheduler.custody.departures.give(record, handover_owner(request.id))
        self._notice(HandedOver(request.id, length))
        for pool in self._memory.pools:
            self._send(outgoing, pool.name, pool.pages_due(outgoing.sent_len(pool.name), length))
        outgoing.end = messages.TransferEnd(request.transfer_id, tuple(request.tokens[request.prompt_len :]))
        self._link.send(outgoing.end)
        return True

    def swap_out(self, request: Request, record: KVRecord) -> bool:
        """Prepare to compute and send a retracted prompt again, so that its pages may be freed at once."""
        outgoing = self._transfers[request.transfer_id]
        outgoing.sent.clear()
        outgoing.unacknowledged.clear()
        return False

    def has_request(self, request: Request) -> bool:
        outgoing = self._transfers.get(request.transfer_id)
        return outgoing is not None and outgoing.prefix_len is None

    def ended(self, request: Request, ending: Ending) -> None:
        """Close a transfer whose request ends before its prompt is done."""
        outgoing = self._transfers.get(request.transfer_id)
        if outgoing is None or outgoing.record is None:
            self._transfers.pop(request.transfer_id, None)
            self.last_transfer_id = max(self.last_transfer_id, request.transfer_id)
            self._close(request.transfer_id, str(ending))

    def _why_rejected(self, message: messages.Message) -> str | None:
        outgoing = self._transfers.get(message.transfer_id)
        match message:
            case messages.TransferRequest() | messages.PageData() | messages.TransferEnd():
                return "it is from a prefill engine, as this one is"
            case messages.Invitation() if outgoing is not None and outgoing.terms == message.terms:
                prompt_len, page_size = outgoing.request.prompt_len, self._memory.page_size
                return why_invitation_is_wrong(message, prompt_len=prompt_len, page_size=page_size)
            case messages.PageAck() if outgoing is not None:
                length = outgoing.request.prompt_len
                return why_pages_are_wrong(message, payload.all_pages_due(self._memory, prefix_len=0, length=length))
            case _:
                return None

    def _receive(self, message: messages.Message) -> None:
        outgoing = self._transfers.get(message.transfer_id)
        if outgoing is not None:
            outgoing.timer.received(self._now_ms)
        match message:
            case messages.Invitation():
                self._receive_invitation(message, outgoing)
            case messages.PageAck() if outgoing is not None:
                outgoing.unacknowledged.pop(PageRange(message.pool, message.first, message.num_pages), None)
            case messages.Close() if outgoing is not None:
                self._receive_close(message, outgoing)
            case _:
                pass

    def _receive_invitation(self, invitation: messages.Invitation, outgoing: Outgoing | None) -> None:
        """Accept an invitation; ignore it until the client's request arrives; close it if the transfer has ended."""
        transfer_id = invitation.transfer_id
        if outgoing is None:
            if transfer_id <= self.last_transfer_id:
                self._retransmit_close(transfer_id)
        elif detail := payload.disagreement(outgoing.terms, invitation.terms):
            self._end(transfer_id, Ending(FinishReason.TRANSFER_FAILED, detail))
        elif outgoing.prefix_len is None:
            outgoing.prefix_len = invitation.prefix_len
            self._notice(Invited(outgoing.request.id, invitation.prefix_len))
            self._scheduler.waiting.add(outgoing.request)
            self._link.send(messages.KeepAlive(transfer_id))
        elif outgoing.prefix_len != invitation.prefix_len:
            detail = f"the decode side was restarted, with {invitation.prefix_len} tokens of the prompt"
            self._end(transfer_id, Ending(FinishReason.TRANSFER_FAILED, detail))
        else:
            self._link.send(messages.KeepAlive(transfer_id))

    def _receive_close(self, close: messages.Close, outgoing: Outgoing) -> None:
        if outgoing.record is None:
            detail = f"ended by the decode side: {close.reason or ALREADY_COMPLETE}"
            self._end(close.transfer_id, Ending(FinishReason.TRANSFER_FAILED, detail))
        else:
            self._release(close.transfer_id, close.reason or FreeCause.HANDED_OVER)

    def _end(self, transfer_id: int, ending: Ending) -> None:
        """End the request, or release the record that is held for it."""
        outgoing = self._transfers[transfer_id]
        if outgoing.record is None:
            self._scheduler.end(outgoing.request, ending)
        else:
            self._close(transfer_id, str(ending))
            self._release(transfer_id, ending.reason)

    def _release(self, transfer_id: int, cause: str) -> None:
        outgoing = self._transfers.pop(transfer_id)
        assert outgoing.record is not None, f"transfer {transfer_id} has no record"
        self._scheduler.custody.departures.release(outgoing.record, cause=cause)
        self._notice(LetGo(outgoing.request.id, cause))

    def _retry_ms(self, outgoing: Outgoing) -> int:
        """The retransmission interval.

        Thousands of requests may wait for an invitation.  A request that the decode side has acknowledged is
        retransmitted only every half timeout.
        """
        is_known = outgoing.record is None and outgoing.timer.first_unanswered_ms is None
        return self._config.link_timeout_ms // 2 if is_known else self._config.link_retry_ms

    def _retransmit(self, transfer_id: int, outgoing: Outgoing) -> None:
        """Retransmit what the peer has not acknowledged; pages only after the send buffer has drained."""
        outgoing.timer.sent(self._now_ms)
        if outgoing.record is None:
            self._link.send(messages.TransferRequest(transfer_id, outgoing.terms))
            return
        for pages in outgoing.unacknowledged if self._is_link_clear else ():
            self._send_pages(outgoing, pages)
        assert outgoing.end is not None, f"transfer {transfer_id} holds a record, and has no end"
        self._link.send(outgoing.end)

    def _send(self, outgoing: Outgoing, pool: str, due: range) -> None:
        for piece in payload.pieces(self._memory, pool, due, max_bytes=self._config.link_frame_bytes):
            pages = PageRange(pool, piece.start, len(piece))
            outgoing.unacknowledged[pages] = None
            self._send_pages(outgoing, pages)

    def _send_pages(self, outgoing: Outgoing, pages: PageRange) -> None:
        record = outgoing.record or self._scheduler.custody.record(outgoing.request)
        pool, first, count = pages
        numbers, kv = payload.read_pages(self._memory, pool, record.handles[first : first + count])
        self._notice(Sent(outgoing.request.id, pool, first, tuple(numbers)))
        checksums = payload.checksums_of(self._memory, pool, kv) if self._config.checksum_transfers else ()
        self._link.send(messages.PageData(outgoing.request.transfer_id, pool, first, count, kv, checksums))
