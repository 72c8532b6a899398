"""The decode side: it reserves pages for a prompt, receives the prompt's KV, and runs the request from there."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

from swarden.engine_under_test import messages
from swarden.engine_under_test.cache.match import Match
from swarden.engine_under_test.cache.prefix_cache import PrefixCache
from swarden.engine_under_test.cache.record import KVRecord
from swarden.engine_under_test.config import EngineConfig
from swarden.engine_under_test.disaggregation import payload
from swarden.engine_under_test.disaggregation.rules import why_content_is_wrong, why_end_is_wrong, why_pages_are_wrong
from swarden.engine_under_test.disaggregation.side import LinkedTo, PeerTimer, Side
from swarden.engine_under_test.errors import PoolExhausted
from swarden.engine_under_test.pools.memory import KVMemory
from swarden.engine_under_test.pools.paired import Need
from swarden.engine_under_test.request import Ending, Request
from swarden.engine_under_test.scheduler.scheduler import Scheduler
from swarden.engine_under_test.units import align_down, handover_owner, num_pages
from swarden.invariants.events import Filled, FinishReason, LetGo, Matched, Reserved, SetAside, TakenOver


@dataclass(slots=True, eq=False)
class IncomingRequest:
    """A request that waits for free pages, or, once it has a record, for their content."""

    request: Request
    swapped_out: Sequence[payload.Pages] | None = None  # its KV, if it was retracted; the prefill side sends nothing
    terms: str = ""
    record: KVRecord | None = None
    missing: dict[str, set[int]] = field(default_factory=dict)  # by pool, the page indices that have not arrived
    end: messages.TransferEnd | None = None  # the last message of the transfer
    timer: PeerTimer = field(default_factory=lambda: PeerTimer(0, 0))

    @property
    def length(self) -> int:
        """The number of tokens whose KV must be present to run: the prompt; after a swap, all but the newest token."""
        return self.request.prompt_len if self.swapped_out is None else len(self.request.tokens) - 1

    @property
    def is_complete(self) -> bool:
        return not any(self.missing.values()) and (self.swapped_out is not None or self.end is not None)


class DecodeSide(Side):
    """The requests that wait for pages, in order of arrival without regard to priority, and the transfers.

    Swapped-out requests come first, so their number never exceeds `max_running_requests`.
    """

    def __init__(
        self, config: EngineConfig, memory: KVMemory, cache: PrefixCache, scheduler: Scheduler, linked_to: LinkedTo
    ) -> None:
        super().__init__(config, memory, scheduler, linked_to)
        self._cache = cache
        # by transfer id, the oldest first
        self._swapped_out: dict[int, IncomingRequest] = {}
        self._queue: dict[int, IncomingRequest] = {}
        self._transfers: dict[int, IncomingRequest] = {}

    @property
    def requests(self) -> Sequence[Request]:
        """The requests that wait for pages, in order, then those that have a transfer."""
        return [incoming.request for incoming in chain(self._waiting(), self._transfers.values())]

    @property
    def records(self) -> Sequence[KVRecord]:
        return [incoming.record for incoming in self._transfers.values() if incoming.record is not None]

    @property
    def awaited(self) -> Mapping[int, Mapping[str, Collection[int]]]:
        return {incoming.request.id: incoming.missing for incoming in self._transfers.values()}

    @property
    def has_work(self) -> bool:
        return bool(self._swapped_out or self._queue or self._transfers)

    def add_request(self, request: Request) -> None:
        self.last_transfer_id = max(self.last_transfer_id, request.transfer_id)
        timer = PeerTimer(request.arrival_ms, request.arrival_ms)
        incoming = IncomingRequest(request, terms=self._terms_of(request), timer=timer)
        self._queue[request.transfer_id] = incoming

    def step(self, now_ms: int) -> None:
        self._receive_all(now_ms)
        if not self._scheduler.is_paused:
            self._join_complete()
            while (first := next(self._waiting(), None)) and self._begin_transfer(first):
                self._join_complete()
        for transfer_id, incoming in list(self._transfers.items()):
            self._check_peer(transfer_id, incoming)
        self._expire_queued()

    def _expire_queued(self) -> None:
        """Time out queued requests without a message from the prefill side for twice `link_timeout_ms`.

        This side sends nothing for them by itself; it relies on the TransferRequests that the prefill side retransmits.
        """
        since_ms = self._answered_ms - 2 * self._config.link_timeout_ms
        for incoming in [transfer for transfer in self._queue.values() if transfer.timer.last_received_ms <= since_ms]:
            self._time_out(incoming)

    def is_withheld(self, record: KVRecord, end: int) -> bool:
        """Would a match of [0, end) lack pages?  Only the pages that the next token reads arrive here."""
        end = align_down(end, self._memory.page_size)
        return any(record.frontier(pool.name) > pool.needed_from(end) for pool in self._memory.pools)

    def swap_out(self, request: Request, record: KVRecord) -> bool:
        """Copy the request's KV out of the pools; it is restored later, because this side cannot recompute a prompt."""
        length, memory = record.committed_len, self._memory
        swapped_out = []
        for pool, due in payload.all_pages_due(memory, prefix_len=0, length=length).items():
            _, kv = payload.read_pages(memory, pool, record.handles[due.start : due.stop])
            checksums = payload.checksums_of(memory, pool, kv) if self._config.checksum_transfers else ()
            swapped_out.append(payload.Pages(pool, due.start, len(due), kv.to("cpu"), checksums))
        self._swapped_out[request.transfer_id] = IncomingRequest(request, swapped_out)
        self._notice(SetAside(request.id, length))
        return True

    def has_request(self, request: Request) -> bool:
        return any(request.transfer_id in among for among in (self._swapped_out, self._queue, self._transfers))

    def ended(self, request: Request, ending: Ending) -> None:
        """Close a transfer that ends before it is complete."""
        transfer_id = request.transfer_id
        is_rejected = transfer_id > self.last_transfer_id  # it was never added
        incoming, queued = self._transfers.pop(transfer_id, None), self._queue.pop(transfer_id, None)
        self._swapped_out.pop(transfer_id, None)
        self.last_transfer_id = max(self.last_transfer_id, transfer_id)
        if incoming is not None and incoming.record is not None:
            self._scheduler.custody.departures.release(incoming.record, cause=ending.reason)
            self._notice(LetGo(request.id, ending.reason))
        if is_rejected or incoming or queued:
            self._close(transfer_id, str(ending))

    def _why_rejected(self, message: messages.Message) -> str | None:
        incoming = self._transfers.get(message.transfer_id)
        match message:
            case messages.Invitation() | messages.PageAck():
                return "it is from a decode engine, as this one is"
            case messages.PageData() if incoming is not None and incoming.swapped_out is None:
                due = payload.all_pages_due(self._memory, prefix_len=0, length=incoming.length)
                return why_pages_are_wrong(message, due) or why_content_is_wrong(message, self._memory)
            case messages.TransferEnd() if incoming is not None and incoming.swapped_out is None:
                num_tokens, vocab_size = payload.num_first_tokens(incoming.request), self._linked_to.vocab_size
                return why_end_is_wrong(message, num_tokens=num_tokens, vocab_size=vocab_size)
            case _:
                return None

    def _receive(self, message: messages.Message) -> None:
        incoming = self._transfers.get(message.transfer_id)
        if incoming is None:
            self._receive_without_transfer(message)
            return
        if incoming.end is None or isinstance(message, messages.PageData):  # after the end only page data is progress
            incoming.timer.received(self._now_ms)
        match message:
            case messages.PageData():
                pages = payload.Pages(message.pool, message.first, message.num_pages, message.pages, message.checksums)
                if incoming.swapped_out is None:
                    self._fill(incoming, pages)
                self._link.send(messages.PageAck(message.transfer_id, pages.pool, pages.first, pages.num_pages))
            case messages.TransferEnd():
                incoming.end = message
                self._link.send(messages.KeepAlive(message.transfer_id))
            case messages.TransferRequest() if incoming.swapped_out is None and incoming.record is not None:
                incoming.end = None  # the prefill engine was restarted
                self._invite(incoming, incoming.record)
            case messages.Close() if not incoming.is_complete:
                self._end_closed(incoming, message.reason)
            case _:
                pass

    def _receive_without_transfer(self, message: messages.Message) -> None:
        """Answer a message for a queued request that was not invited yet, or for a transfer that is closed here."""
        queued, is_accepted = self._queue.get(message.transfer_id), message.transfer_id <= self.last_transfer_id
        if queued is not None:
            queued.timer.received(self._now_ms)
            reason = (
                payload.disagreement(queued.terms, message.terms)
                if isinstance(message, messages.TransferRequest)
                else None
            )
            if isinstance(message, messages.Close):
                self._end_closed(queued, message.reason)
            elif reason is not None:
                self._scheduler.end(queued.request, Ending(FinishReason.TRANSFER_FAILED, reason))
            else:
                self._link.send(messages.KeepAlive(message.transfer_id))
        elif is_accepted and isinstance(message, (messages.TransferRequest, messages.PageData, messages.TransferEnd)):
            self._retransmit_close(message.transfer_id)

    def _begin_transfer(self, incoming: IncomingRequest) -> bool:
        """Reserve the row of the first request, and the pages that its next token reads; False if it must wait."""
        request, rows = incoming.request, self._memory.table.rows
        if not rows.num_free:
            return False
        match = self._cache.match(request.tokens[: incoming.length + 1], request.namespace)
        match = replace(match, reach=None)
        due = payload.all_pages_due(self._memory, prefix_len=match.length, length=incoming.length)
        need, frontiers = {pool: len(pages) for pool, pages in due.items()}, self._frontiers(incoming.length)
        if not self._fits(need, self._cache.pages_to_lock(match, frontiers=frontiers)):
            return False
        if self._observer:
            self._notice(
                Matched(request.id, request.namespace, tuple(request.tokens), match.length, tuple(match.handles))
            )
        record = self._reserve(incoming, match, due)
        if record is None:
            return False
        among = self._queue if incoming.swapped_out is None else self._swapped_out
        del among[request.transfer_id]
        self._transfers[request.transfer_id] = incoming
        incoming.record, incoming.timer = record, PeerTimer(self._now_ms, self._now_ms, self._now_ms)
        incoming.missing = {pool: set(pages) for pool, pages in due.items()}
        if incoming.swapped_out is None:
            self._invite(incoming, record)
        for pages in incoming.swapped_out or ():
            self._fill(incoming, pages)
        return True

    def _waiting(self) -> Iterator[IncomingRequest]:
        """The requests that wait for pages: swapped-out requests before new ones."""
        return chain(self._swapped_out.values(), self._queue.values())

    def _frontiers(self, length: int) -> dict[str, int]:
        """By pool, the position below which no page is needed, not even of the cached prefix."""
        return {pool.name: pool.needed_from(length) for pool in self._memory.pools}

    def _fits(self, need: Need, to_lock: Need) -> bool:
        """Are these pages free or evictable, beside the reserves?

        The running requests, the transfers and the new request keep a reserve each, to grow into.  If the engine is
        otherwise idle, no reserve is kept.
        """
        scheduler = self._scheduler
        running = scheduler.decode_candidates()
        budget = scheduler.admission.new_budget(running, ratio=scheduler.ratio.value)
        if not (running or self._transfers or scheduler.pipeline):
            return all(need[pool] + to_lock[pool] <= budget.available(pool) for pool in need)
        num_active, page_size = len(running) + len(self._transfers) + 1, self._memory.page_size
        reserve = num_pages(self._config.reserved_decode_tokens, page_size)
        kept = {pool.name: num_active * pool.net_growth(reserve) for pool in self._memory.pools}
        return all(need[pool] + to_lock[pool] + kept[pool] <= budget.available(pool) for pool in need)

    def _reserve(self, incoming: IncomingRequest, match: Match, due: Mapping[str, range]) -> KVRecord | None:
        """A record with a row and all pages; None, with nothing taken, where a pool refuses.

        |the tree's, under receipt|no pages in a pool up to its|..... tail .....|
        |0 ............ prefix_len|.....................frontier|......... length|
        """
        owner, memory, length = handover_owner(incoming.request.id), self._memory, incoming.length
        prefix_len, frontiers = match.length, self._frontiers(length)
        receipt = self._cache.slide(self._cache.lock(match), frontiers)
        shared = match.handles
        for pool, frontier in frontiers.items():
            border = frontier // memory.page_size
            shared = memory.ledgers.without(pool, shared[:border]) + shared[border:]
        need = {pool: len(pages) for pool, pages in due.items()}
        self._scheduler.custody.evict(need)
        first, stop = match.length // memory.page_size, num_pages(length, memory.page_size)
        places = {pool: range(pages.start - first, pages.stop - first) for pool, pages in due.items()}
        try:
            handles = memory.ledgers.take(stop - first, owner=owner, places=places)
        except PoolExhausted:
            self._cache.unlock(receipt)
            return None
        [row] = memory.table.rows.take(1, owner=owner)
        record = KVRecord(owner, row, receipt, prefix_len, prefix_len, prefix_len, length, frontiers)
        record.write(memory.table, 0, [*shared, *handles])
        self._notice(Reserved(incoming.request.id, prefix_len, length, tuple(need.items())))
        return record

    def _fill(self, incoming: IncomingRequest, pages: payload.Pages) -> None:
        """Write the pages that are missing; pages that arrived before are not overwritten."""
        assert incoming.record is not None, f"request {incoming.request.id} has no pages to write to"
        missing = incoming.missing.get(pages.pool, set())
        written = dict(payload.write_pages(self._memory, pages, incoming.record.handles, missing))
        missing.difference_update(written)
        if written:
            checksums = tuple(pages.checksums[index - pages.first] for index in written) if pages.checksums else ()
            self._notice(Filled(incoming.request.id, pages.pool, tuple(written), tuple(written.values()), checksums))

    def _join_complete(self) -> None:
        """Close each complete transfer, and let its request run."""
        for transfer_id, incoming in list(self._transfers.items()):
            if incoming.is_complete:
                assert incoming.record is not None, f"transfer {transfer_id} has no record"
                record, tokens = incoming.record, incoming.end.tokens if incoming.end else ()
                del self._transfers[transfer_id]
                record.committed_len = record.launched_len = incoming.length
                self._scheduler.custody.departures.give(record, incoming.request.owner)
                if incoming.swapped_out is None:
                    self._close(transfer_id)
                self._notice(TakenOver(incoming.request.id, incoming.length, tokens))
                self._scheduler.join(incoming.request, record, tokens)

    def _check_peer(self, transfer_id: int, incoming: IncomingRequest) -> None:
        """Retransmit an unanswered invitation, and end the request when the peer has timed out."""
        if incoming.swapped_out is not None or incoming.is_complete:
            return
        if self._is_expired(incoming.timer):
            self._time_out(incoming)
        elif self._now_ms - incoming.timer.last_sent_ms >= self._config.link_retry_ms:
            assert incoming.record is not None, f"transfer {transfer_id} has no record"
            incoming.timer.sent(self._now_ms)
            self._invite(incoming, incoming.record)

    def _invite(self, incoming: IncomingRequest, record: KVRecord) -> None:
        self._link.send(messages.Invitation(incoming.request.transfer_id, record.protected_len, incoming.terms))

    def _time_out(self, incoming: IncomingRequest) -> None:
        absent = "message" if incoming.end is None else "missing page"
        idle_ms = incoming.timer.idle_ms(self._now_ms)
        detail = f"no {absent} from the prefill side for {idle_ms} ms"
        self._scheduler.end(incoming.request, Ending(FinishReason.PEER_TIMEOUT, detail))

    def _end_closed(self, incoming: IncomingRequest, reason: str) -> None:
        detail = f"ended by the prefill side: {reason}"
        self._scheduler.end(incoming.request, Ending(FinishReason.TRANSFER_FAILED, detail))
