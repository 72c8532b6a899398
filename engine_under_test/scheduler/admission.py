"""Who computes which chunk in the next pass: admission as a reservation.

A demand is computed once.  Its firm part is reserved in the step's book and consumed by the
allocation; its estimate only decides whether to admit.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

from engine_under_test.cache.prefix_cache import Match, PrefixCache
from engine_under_test.cache.record import KVRecord
from engine_under_test.config import EngineConfig
from engine_under_test.events import Admitted, Matched
from engine_under_test.pools.memory import KVMemory
from engine_under_test.ports import Observer
from engine_under_test.request import Request
from engine_under_test.scheduler.batch import Entry
from engine_under_test.scheduler.demand import (
    Book,
    Demand,
    Extent,
    Held,
    Need,
    chunk_room,
    demand_of,
    fitting_end,
    growth_of,
    longest_chunk,
    pages_between,
)
from engine_under_test.scheduler.queues import WaitingQueue

WINDOWED_RESERVE_PAGES = 1  # left over by a chunk in each windowed pool (sglang pull 23174)


@dataclass(frozen=True, slots=True)
class Planned:
    """An entry whose pages are reserved and not yet taken."""

    entry: Entry
    firm: Need


class Admission:
    """Plans one step's prefill; makes records, locks and reservations, takes no page."""

    def __init__(self, config: EngineConfig, memory: KVMemory, cache: PrefixCache, observer: Observer | None) -> None:
        self._config = config
        self._memory = memory
        self._cache = cache
        self._observer = observer

    def open_book(self, running: Sequence[tuple[Request, KVRecord]], *, ratio: float) -> Book:
        """A step's book, with the next decode step of whatever runs promised already."""
        budget = self._config.chunk_len or self._config.max_context_len * self._config.max_running_requests
        book = Book(self._memory.ledgers.ledgers, self._cache, budget=budget, ratio=ratio)
        for request, record in running:
            held = Held(record.committed_len, record.allocated_len, max(record.frontier, record.protected_len))
            new_len = min(request.tokens_left, self._config.max_estimated_new_tokens)
            book.reserve(growth_of(held, ceil(new_len * ratio), self._memory.pools, page_size=self._config.page_size))
        return book

    def in_order(self, waiting: WaitingQueue) -> list[Request]:
        """Who waits, in the order in which they are asked whether they fit."""
        if self._config.waiting_order == "fcfs":
            return list(waiting)
        return waiting.longest_match_first(lambda request: self._cache.match(request.tokens, request.namespace).length)

    def decode_need(self, running: Sequence[KVRecord]) -> Need:
        """Pages that one decode step of these takes from every pool."""
        page_size = self._config.page_size
        count = sum(
            pages_between(record.allocated_len, record.committed_len + 1, page_size)
            for record in running
            if record.committed_len + 1 > record.allocated_len
        )
        return {pool.name: count for pool in self._memory.pools}

    def plan_chunk(self, request: Request, record: KVRecord, book: Book, *, alone: bool) -> Planned | None:
        """The next chunk of a request that has begun; None parks it.

        In a windowed pool it leaves a page in reserve, unless it is alone and could not go on.
        """
        room = self._room_behind(record, book, reserve=WINDOWED_RESERVE_PAGES)
        if room <= 0 and alone:
            room = self._room_behind(record, book, reserve=0)
        if min(room, book.budget) <= 0:
            return None
        extent = self._extent(request, record.committed_len, most=min(room, book.budget))
        return self._reserve(request, record, extent, self._demand(extent, ratio=book.ratio), book)

    def plan_new(self, request: Request, book: Book, *, alone: bool) -> Planned | None:
        """The first chunk of a request that waits; None where it must go on waiting.

        When nothing else runs no estimate may keep it out, and its chunk shrinks to what there is.
        """
        if not self._memory.table.rows.num_free or book.budget <= 0:
            return None
        match = self._cache.match(request.tokens, request.namespace)
        to_lock = self._cache.pages_to_lock(match)
        whole = self._extent(request, match.length, most=book.budget)
        extent = self._extent(request, match.length, most=self._longest_chunk(whole))
        demand = self._demand(extent, ratio=book.ratio)
        if not book.fits(demand.total, besides=to_lock):
            pages = min(book.room(pool) - pinned for pool, pinned in to_lock.items())
            if not alone or pages <= 0:
                return None
            extent = self._extent(request, match.length, most=min(book.budget, pages * self._config.page_size))
            demand = self._demand(extent, ratio=0.0)
        if self._observer:
            key = tuple(request.tokens)
            self._observer.notice(Matched(request.id, request.namespace, key, match.length, tuple(match.handles)))
        return self._reserve(request, self._open_record(request, match), extent, demand, book)

    def _open_record(self, request: Request, match: Match) -> KVRecord:
        [row] = self._memory.table.rows.take(1, owner=request.owner)
        receipt = self._cache.lock(match)
        self._memory.table.write(row, 0, match.handles)
        return KVRecord(request.owner, row, receipt, match.length, match.length, match.length, 0, match.handles)

    def _reserve(self, request: Request, record: KVRecord, extent: Extent, demand: Demand, book: Book) -> Planned:
        book.reserve(demand)
        book.budget -= extent.end - extent.start
        if self._observer:
            firm, total = tuple(demand.firm.items()), tuple(demand.total.items())
            self._observer.notice(Admitted(request.id, extent.start, extent.end, firm, total))
        entry = Entry(request, record, extent.start, extent.end, completes_input=extent.end == extent.input_len)
        return Planned(entry, demand.firm)

    def _extent(self, request: Request, start: int, *, most: int) -> Extent:
        input_len = len(request.tokens)
        end = fitting_end(start, input_len, most=most, page_size=self._config.page_size)
        return Extent(start, end, input_len, min(request.tokens_left, self._config.max_estimated_new_tokens))

    def _demand(self, extent: Extent, *, ratio: float) -> Demand:
        return demand_of(extent, self._memory.pools, page_size=self._config.page_size, ratio=ratio)

    def _room_behind(self, record: KVRecord, book: Book, *, reserve: int) -> int:
        """Tokens that a begun request can go on by, in the pool that has least."""
        page_size = self._config.page_size
        slack = -record.allocated_len % page_size
        return min(
            chunk_room(book.room(pool.name), slack=slack, page_size=page_size, reserve=reserve if pool.window else 0)
            for pool in self._memory.pools
        )

    def _longest_chunk(self, extent: Extent) -> int:
        """As much of a stretch as an otherwise empty engine could take at once; a page at least."""
        lengths = [
            longest_chunk(extent, pool.num_pages, pool.window, self._config.page_size)
            for pool in self._memory.pools
            if pool.window is not None
        ]
        return min([extent.end - extent.start, *lengths])
