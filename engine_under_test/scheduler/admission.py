"""Admission as a reservation: which requests compute which chunk in the next pass.

The firm part of a demand is reserved in the step's budget and consumed by the allocation.  The estimate only decides
whether to admit.  A request is `alone` if no page becomes free while it waits.  If such a request does not fit, it is
planned again without its load, and then with a shorter chunk: that is another demand.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil

from swarden.engine_under_test.cache.match import Match
from swarden.engine_under_test.cache.record import KVRecord
from swarden.engine_under_test.components import Extent
from swarden.engine_under_test.config import EngineConfig
from swarden.engine_under_test.errors import PoolExhausted
from swarden.engine_under_test.host.tier import LoadUnderWay
from swarden.engine_under_test.pools.paired import Need
from swarden.engine_under_test.ports import Observer
from swarden.engine_under_test.request import Request
from swarden.engine_under_test.scheduler.batch import Entry, Loading, Running
from swarden.engine_under_test.scheduler.demand import (
    Budget,
    Demand,
    Held,
    decode_pages,
    demand_of,
    fitting_end,
    growth_of,
)
from swarden.engine_under_test.scheduler.loading import Storage
from swarden.engine_under_test.scheduler.preempt import Yield
from swarden.engine_under_test.scheduler.queues import WaitingQueue
from swarden.engine_under_test.sessions.controller import Sessions
from swarden.invariants.events import Admitted, LoadPlanned, Matched


@dataclass(frozen=True, slots=True)
class Wish:
    """The match, the locks, the load and the demand of a waiting request, if it were admitted now."""

    match: Match
    to_lock: Need
    load: Need  # additional pages; {}: no load is needed
    extent: Extent
    demand: Demand  # of the first stretch
    shared: LoadUnderWay | None = None  # in flight for another request, with some or all of the pages
    kept_len: int = 0  # tokens reused from the session of the request, beside the match

    @property
    def total(self) -> Need:
        """All pages that the request may need."""
        return {pool: count + self.load.get(pool, 0) for pool, count in self.demand.total.items()}


class Admission:
    """Plans one step's prefill: makes records, locks and reservations; takes pages only for loads."""

    def __init__(self, config: EngineConfig, storage: Storage, sessions: Sessions, observer: Observer | None) -> None:
        self._config = config
        self._memory, self._cache, self._host = storage
        self._sessions = sessions
        self._observer = observer
        self._has_states = any(pool.has_states for pool in self._memory.pools)

    def new_budget(self, running: Sequence[Running], *, ratio: float) -> Budget:
        """The budget of a batch, with the next decode step of all running requests reserved.

        In a mixed batch each decoding request takes one of its tokens.
        """
        tokens = self._config.chunk_len or self._config.max_context_len * self._config.max_running_requests
        if self._config.mixed_batches:
            tokens -= len(self.decodable(running))
        budget = Budget(self._memory.ledgers.ledgers, self._cache, tokens=tokens, ratio=ratio)
        for run in running:
            budget.reserve(self.growth(run, ratio=ratio))
        return budget

    def decodable(self, running: Sequence[Running]) -> list[Running]:
        """The running requests whose last token is known; without drafts, the token may be in flight still."""
        if not self._config.draft_tokens:
            return list(running)
        return [run for run in running if run.record.launched_len == run.record.committed_len]

    def match(self, request: Request) -> Match:
        """The cached prefix of a waiting request."""
        return self._cache.match(request.tokens, request.namespace)

    def growth(self, running: Running, *, ratio: float) -> Demand:
        """The pages that a running request will take: for its next step, and for its estimated growth."""
        config, record = self._config, running.record
        private_from = [max(record.frontier(pool.name), record.protected_len) for pool in self._memory.pools]
        held = Held(record.launched_len, record.allocated_len, private_from)
        new_len = min(running.request.tokens_left, config.max_estimated_new_tokens)
        lookahead = config.lookahead_tokens
        return growth_of(
            held, ceil(new_len * ratio), self._memory.pools, page_size=config.page_size, lookahead=lookahead
        )

    def yields(self, rivals: Sequence[Running], owned: Sequence[Need], *, ratio: float) -> list[Yield]:
        """The pages that each preemption would save: the pages owned, and the estimated growth."""
        return [
            Yield(run.request, own, self.growth(run, ratio=ratio).total) for run, own in zip(rivals, owned, strict=True)
        ]

    def in_order(self, waiting: WaitingQueue) -> list[Request]:
        """The waiting requests, in the order of admission."""
        if self._config.waiting_order == "fcfs":
            return waiting.in_order()
        return waiting.in_order(lambda request: self.match(request).length)

    def decode_need(self, running: Sequence[Running]) -> Need:
        """Pages that one decode step of these requests takes from every pool."""
        config = self._config
        count = sum(
            decode_pages(
                run.record.launched_len,
                run.record.allocated_len,
                page_size=config.page_size,
                lookahead=config.lookahead_tokens,
            )
            for run in running
        )
        return {pool.name: count for pool in self._memory.pools}

    def lacks(self, request: Request, budget: Budget) -> Need:
        """The pages and rows that a waiting request lacks, by pool; {} if it lacks none, or if the batch is full."""
        if budget.tokens <= 0:
            return {}
        wish = self._wish(request, budget)
        missing = dict(budget.lacks(wish.total, besides=wish.to_lock))
        if not self._memory.table.rows.num_free:
            missing[self._memory.table.rows.name] = 1
        return missing

    def lacks_beside(self, request: Request, running: Sequence[Running], *, ratio: float, num_yields: int) -> Need:
        """The pages that a waiting request lacks beside the running requests; `num_yields` of them are preempted."""
        budget = self.new_budget(running, ratio=ratio)
        lacking = self.lacks(request, budget)
        if lacking and self._config.mixed_batches:
            # A preempted request frees its token of the budget, too: the chunk may be longer then, and need more pages.
            budget.tokens += num_yields
            lacking = self.lacks(request, budget)
        return lacking

    def plan_chunk(self, request: Request, record: KVRecord, budget: Budget, *, alone: bool) -> Entry | None:
        """The next chunk of a request whose prefill has begun; None parks the request.

        The chunk leaves a reserve in each pool that has one, unless the request is alone and needs those pages.
        """
        capacity = self._chunk_capacity(record, budget, with_reserve=True)
        if capacity <= 0 and alone:
            capacity = self._chunk_capacity(record, budget, with_reserve=False)
        if min(capacity, budget.tokens) <= 0:
            return None
        most = self._up_to_branch(request, record.launched_len, most=min(capacity, budget.tokens))
        extent = self._extent(request, record.launched_len, most=most)
        return self._reserve(request, record, extent, self._demand(extent, ratio=budget.ratio), budget)

    def plan_new(self, request: Request, budget: Budget, *, alone: bool) -> Entry | Loading | None:
        """The first chunk of a waiting request, or the load before that chunk; None where the request must wait.

        A request also waits while a load in flight for another request brings a part of its host pages.

        When the request is alone, the estimate cannot defer it, and its chunk shrinks to the free pages.
        """
        if not self._memory.table.rows.num_free or budget.tokens <= 0:
            return None
        wish = self._wish(request, budget)
        if wish.shared is not None and not wish.shared.brings_all:
            return None  # the rest can be loaded after the load in flight
        if wish.load:
            if budget.fits(wish.total, besides=wish.to_lock):
                return self._load(request, wish, budget)
            if not alone:
                return None
            wish = self._wish_without_load(request, wish.match, budget)
        extent, demand = wish.extent, wish.demand
        if not budget.fits(demand.total, besides=wish.to_lock):
            most = min(
                pool.chunk_capacity(budget.available(pool.name) - wish.to_lock[pool.name], slack=0)
                for pool in self._memory.pools
            )
            if not alone or most <= 0:
                return None
            most = self._up_to_branch(request, extent.start, most=min(budget.tokens, most))
            extent = self._extent(request, extent.start, most=most)
            demand = self._demand(extent, ratio=0.0)
        record = self._sessions.lend(request) if wish.kept_len else self._open_record(request, wish.match)
        return self._reserve(request, record, extent, demand, budget)

    def extend(self, request: Request, record: KVRecord) -> None:
        """Lock the longest match of a request after its load has ended, complete or not."""
        self._cache.extend(record, self.match(request))

    def _wish(self, request: Request, budget: Budget) -> Wish:
        """The wish of a waiting request, with a load if it is worth the copy; a load in flight is not charged again."""
        match = self.match(request)
        kept_len = self._sessions.kept_len(request)
        if kept_len and kept_len >= match.farthest.length:
            extent, demand = self._first_stretch(request, kept_len, budget)
            return Wish(match, dict.fromkeys(demand.total, 0), {}, extent, demand, kept_len=kept_len)
        load = self._host.pages_to_load(match) if self._host is not None else {}
        if not load:
            return self._wish_without_load(request, match, budget)
        shared = self._host.load_under_way(match) if self._host is not None else None
        if shared is not None:
            load = dict.fromkeys(load, 0)
        extent, demand = self._first_stretch(request, match.farthest.length, budget)
        return Wish(match, self._cache.pages_to_lock(match), load, extent, demand, shared)

    def _wish_without_load(self, request: Request, match: Match, budget: Budget) -> Wish:
        extent, demand = self._first_stretch(request, match.length, budget)
        return Wish(match, self._cache.pages_to_lock(replace(match, reach=None)), {}, extent, demand)

    def _first_stretch(self, request: Request, start: int, budget: Budget) -> tuple[Extent, Demand]:
        whole = self._extent(request, start, most=self._up_to_branch(request, start, most=budget.tokens))
        extent = self._extent(request, start, most=self._longest_chunk(whole))
        return extent, self._demand(extent, ratio=budget.ratio)

    def _load(self, request: Request, wish: Wish, budget: Budget) -> Loading:
        """Take the pages of a load at once, and reserve the pages of the stretch behind the load for this step.

        If the pages cannot be taken, the request uses only the match on the device.
        """
        assert self._host is not None, "a load without a host"
        record = self._open_record(request, wish.match)
        length, load = wish.match.farthest.length, wish.load
        try:
            job = self._host.load(wish.match, load) if wish.shared is None else wish.shared.job
        except PoolExhausted:
            length, load, job = wish.match.length, dict.fromkeys(load, 0), 0
        if self._observer:
            firm, total = tuple(load.items()), tuple(wish.total.items())
            self._observer.notice(LoadPlanned(request.id, length, job, firm, total))
        budget.reserve(wish.demand)
        return Loading(request, record, job)

    def _open_record(self, request: Request, match: Match) -> KVRecord:
        if self._observer:
            key = tuple(request.tokens)
            self._observer.notice(Matched(request.id, request.namespace, key, match.length, tuple(match.handles)))
        [row] = self._memory.table.rows.take(1, owner=request.owner)
        length = match.length
        record = KVRecord(request.owner, row, self._cache.lock(match), length, length, length, length)
        record.write(self._memory.table, 0, match.handles)
        self._sessions.release_kept(request)
        if self._host is not None:
            self._host.found(record.receipt.node)
        return record

    def _reserve(self, request: Request, record: KVRecord, extent: Extent, demand: Demand, budget: Budget) -> Entry:
        budget.reserve(demand)
        budget.tokens -= extent.end - extent.start
        if self._observer:
            firm, total = tuple(demand.firm.items()), tuple(demand.total.items())
            self._observer.notice(Admitted(request.id, extent.start, extent.end, firm, total))
        return Entry(request, record, extent.start, extent.end, completes_input=extent.end == extent.input_len)

    def _up_to_branch(self, request: Request, start: int, *, most: int) -> int:
        """The number of tokens to compute from `start` on: at most `most`, and none after the prefix found in the tree.

        Otherwise no state would be cached there, and the next request that branches off there would find none.
        """
        if not self._has_states:
            return most
        branch = sum(length for _, length in self._cache.tree.walk(request.tokens, request.namespace))
        return min(most, branch - start) if branch > start else most

    def _extent(self, request: Request, start: int, *, most: int) -> Extent:
        """The extent of at most `most` tokens from `start` on."""
        input_len = len(request.tokens)
        end = fitting_end(start, input_len, most=most, page_size=self._config.page_size)
        new_len = min(request.tokens_left, self._config.max_estimated_new_tokens)
        # A request whose only output token is sampled by its prefill is never decoded.
        lookahead = self._config.lookahead_tokens if new_len > 1 else 0
        return Extent(start, end, input_len, new_len, lookahead)

    def _demand(self, extent: Extent, *, ratio: float) -> Demand:
        return demand_of(extent, self._memory.pools, ratio=ratio)

    def _chunk_capacity(self, record: KVRecord, budget: Budget, *, with_reserve: bool) -> int:
        """The most tokens that a begun request can compute next, limited by the pool with the fewest pages."""
        slack = -record.allocated_len % self._config.page_size
        return min(
            pool.chunk_capacity(budget.available(pool.name) - pool.chunk_reserve * with_reserve, slack=slack)
            for pool in self._memory.pools
        )

    def _longest_chunk(self, extent: Extent) -> int:
        """The longest chunk of a stretch that fits into an otherwise empty engine; a page at least."""
        lengths = [pool.longest_chunk(extent) for pool in self._memory.pools]
        return min([extent.end - extent.start, *lengths])
