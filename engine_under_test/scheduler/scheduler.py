"""Continuous batching: which requests are computed in which step, and when requests finish.

The parts of a step, in order: complete loads; exchange messages with the other side; time out requests; slide windows;
plan a batch (prefill, else decode, or both) and take its pages; launch it; process the oldest pass; start backups.
Without overlap the oldest pass is the pass just launched, with overlap the pass before it.
"""

from collections.abc import Callable, Sequence

from swarden.engine_under_test.cache.record import KVRecord
from swarden.engine_under_test.config import EngineConfig
from swarden.engine_under_test.errors import PoolExhausted
from swarden.engine_under_test.pools.memory import ROWS
from swarden.engine_under_test.pools.paired import Need
from swarden.engine_under_test.ports import Computed, Ports
from swarden.engine_under_test.request import Ending, Output, Request
from swarden.engine_under_test.scheduler.admission import Admission
from swarden.engine_under_test.scheduler.batch import Entry, Loading, Running
from swarden.engine_under_test.scheduler.custody import Custody
from swarden.engine_under_test.scheduler.demand import Budget
from swarden.engine_under_test.scheduler.loading import LoadingQueue, Storage
from swarden.engine_under_test.scheduler.other_side import OtherSide
from swarden.engine_under_test.scheduler.pipeline import Pipeline
from swarden.engine_under_test.scheduler.preempt import Contention, NewTokenRatio, retraction_order, victims
from swarden.engine_under_test.scheduler.queues import Outbox, WaitingQueue
from swarden.invariants import events
from swarden.invariants.events import FinishReason, FreeCause


class Scheduler:
    """Holds every unfinished request, except those of the other side, in `waiting`, `loading`, `chunked` or `running`.

    Requests in `loading` wait for KV from the host, or then for a first chunk.  `chunked` is the request whose input is
    only partly launched.  A shortage of memory defers, retracts or ends requests; it never raises out of `step`.
    `other_side` is called once, while the scheduler is built.
    """

    def __init__(
        self, config: EngineConfig, storage: Storage, ports: Ports, other_side: Callable[["Scheduler"], OtherSide]
    ) -> None:
        self._observer = observer = ports.observer
        self.waiting = WaitingQueue()
        self.loading = LoadingQueue(storage.host)
        self.chunked: Request | None = None
        self.running: list[Request] = []
        self.custody = Custody(config, storage, observer, other_side(self))
        self.pipeline = Pipeline(config, storage.memory, ports)
        self.ratio = NewTokenRatio(config)
        self.is_paused = False
        self._config = config
        self.admission = Admission(config, storage, self.custody.sessions, observer)
        self._outbox = Outbox(observer)

    @property
    def active(self) -> list[Request]:
        """The requests that hold KV."""
        return [*self.loading, *self.computing]

    @property
    def computing(self) -> list[Request]:
        """The active requests whose prefill has begun."""
        return [self.chunked, *self.running] if self.chunked else list(self.running)

    @property
    def has_work(self) -> bool:
        return bool(len(self.waiting) or self.active or self._outbox or self.pipeline or self.loading.under_way)

    def step(self, now_ms: int) -> list[Output]:
        """Run one engine step; returns the outputs for clients since the last step."""
        self._finish_loads()
        self.custody.other_side.step(now_ms)
        self._expire(now_ms)
        self.custody.slide_windows(self.computing, interval=self._config.window_eviction_interval)
        entries = self._plan() if self.pipeline.can_launch and not self.is_paused else []
        if entries:
            self.pipeline.launch(entries)
        if self.pipeline and not (entries and self.pipeline.can_launch):
            self._process_oldest()
        if not self.active:
            self.ratio.reset()
        self.loading.back_up()
        return self._outbox.send()

    def end(self, request: Request, ending: Ending) -> None:
        """End a request, in any place; its KV outside the tree is freed."""
        if request in self.waiting:
            self.waiting.remove(request)
        elif not self.custody.other_side.has_request(request):
            self._remove(request, cause=ending.reason)
        self.note_end(request, ending)

    def note_end(self, request: Request, ending: Ending) -> None:
        """Record the end of a request that holds no KV here; the next step delivers the end to the client."""
        self._outbox.note_end(request, ending)
        self.pipeline.speculation.forget(request)
        self.custody.sessions.end_turn(request)
        self.custody.other_side.ended(request, ending)

    def join(self, request: Request, record: KVRecord, tokens: Sequence[int]) -> None:
        """Run a request whose record was transferred or restored, with output `tokens` not sent to the client yet."""
        self.custody.open(request, record)
        self.running.append(request)
        request.begin(record.protected_len)
        length = record.committed_len
        self._process(Entry(request, record, length, length, completes_input=True), Computed(tokens))

    def pause(self) -> None:
        """Stop launching; every active request frees its KV at once and is requeued."""
        if not self.is_paused:
            self.is_paused = True
            self._notice(events.Paused())
            for request in self.active:
                self._requeue(request, cause=FreeCause.PAUSED)

    def resume(self) -> None:
        if self.is_paused:
            self.is_paused = False
            self._notice(events.Resumed())

    def _finish_loads(self) -> None:
        """Lock the loaded KV of each request whose load has ended, before the KV is evicted."""
        for request in self.loading.wake():
            record = self.custody.record(request)
            self.admission.extend(request, record)
            request.begin(record.committed_len)

    def _expire(self, now_ms: int) -> None:
        self.custody.sessions.expire(now_ms)
        limit = self._config.request_timeout_ms
        if limit is not None:
            for request in [*self.waiting, *self.active, *self.custody.other_side.requests]:
                if now_ms - request.arrival_ms >= limit:
                    self.end(request, Ending(FinishReason.TIMEOUT))

    def _plan(self) -> list[Entry]:
        """The next batch, with its pages: a prefill, with running requests in a mixed batch; else a decode."""
        self._reclaim()
        self._preempt()
        running = self.decode_candidates()
        entries = self._prefill(running)
        if not entries and self._free_decode_pages():
            return self.pipeline.speculation.add_drafts(self._decode(self.decode_candidates()))
        if entries and self._config.mixed_batches and (decodes := self._decode(running)):
            self.ratio.decay()
            entries += decodes
        return entries

    def decode_candidates(self) -> list[Running]:
        """The running requests that have a token to compute; the last token of a request may be in flight already."""
        running = [Running(request, self.custody.record(request)) for request in self.running]
        return [
            run for run in running if run.request.tokens_left > run.record.launched_len + 1 - len(run.request.tokens)
        ]

    def _prefill(self, running: Sequence[Running]) -> list[Entry]:
        """The next chunks, with their pages: of the chunked request, then of loaded, then of waiting requests."""
        begun = [*([self.chunked] if self.chunked else []), *self.loading.ready]
        if not begun and not len(self.waiting):
            return []
        budget = self.admission.new_budget(running, ratio=self.ratio.value)
        planned: list[Entry] = []
        for request in begun:
            if not self._has_begun(request):
                continue  # the request yielded to an earlier request of this loop
            entry = self._plan_chunk(request, budget, alone=not planned and self._is_alone)
            if entry:
                planned.append(entry)
            is_parked, is_cut = not entry and self._has_begun(request), entry and not entry.completes_input
            if is_parked or is_cut:
                return self._take_reserved_pages(planned)
        planned += self._plan_waiting(budget, alone=not planned and self._is_alone)
        return self._take_reserved_pages(planned)

    def _has_begun(self, request: Request) -> bool:
        """Does the request hold KV while a part of its input is not launched yet?"""
        return request is self.chunked or request in self.loading

    @property
    def _is_alone(self) -> bool:
        """Would no page become free by itself, if no request were admitted?"""
        return not (self.running or self.pipeline or self.loading.under_way or self.custody.other_side.records)

    def _plan_chunk(self, request: Request, budget: Budget, *, alone: bool) -> Entry | None:
        """The next chunk of a request; without free pages it is parked, and ended if it is alone.

        Before that idle sessions release their KV, and a request that is alone retracts the loaded requests.
        """
        record = self.custody.record(request)
        if alone:
            self.custody.slide_windows([request], interval=1)
        planned = self.admission.plan_chunk(request, record, budget, alone=alone)
        while planned is None and budget.tokens > 0 and self.custody.sessions.release_oldest():
            planned = self.admission.plan_chunk(request, record, budget, alone=alone)
        while planned is None and alone and (others := [other for other in self.loading.ready if other is not request]):
            self._retract(others[-1], events.GaveWay(others[-1].id, request.id), cause=FreeCause.GAVE_WAY)
            planned = self.admission.plan_chunk(request, record, budget, alone=alone)
        if planned is None:
            self._notice(events.Parked(request.id, record.committed_len))
            if alone:
                self.end(request, Ending(FinishReason.OUT_OF_MEMORY, "no free page for the rest of the prompt"))
        return planned

    def _plan_waiting(self, budget: Budget, *, alone: bool) -> list[Entry]:
        """Admit requests in waiting order, up to the first that does not fit or whose input is chunked."""
        admitted: list[Entry] = []
        for request in self.admission.in_order(self.waiting):
            plan = self.admission.plan_new(request, budget, alone=alone and not admitted and not len(self.loading))
            if plan is None:
                break
            self.waiting.remove(request)
            self.custody.open(request, plan.record)
            if isinstance(plan, Loading):
                self.loading.add(request, plan.job)
                continue
            request.begin(plan.start)
            admitted.append(plan)
            if not plan.completes_input:
                break
        return admitted

    def _take_reserved_pages(self, planned: Sequence[Entry]) -> list[Entry]:
        """Take the reserved pages; a request whose input is complete is running from now on."""
        entries = []
        for entry in planned:
            request = entry.request
            if request is self.chunked:
                self.chunked = None
            elif request in self.loading:
                self.loading.remove(request)
            if entry.completes_input:
                self.running.append(request)
            else:
                self.chunked = request
            if self._take_pages(entry, entry.end):
                entries.append(entry)
        return entries

    def _take_pages(self, entry: Entry, length: int) -> bool:
        """Take the pages of an entry; a request without free pages despite its reservation is requeued."""
        try:
            self.custody.grow(entry.record, length, end=entry.end)
        except PoolExhausted as exhausted:
            request = entry.request
            self._notice(events.RanOut(request.id, exhausted.pool, exhausted.want, exhausted.free))
            self._requeue(request, cause=FreeCause.RAN_OUT)
            return False
        return True

    def _decode(self, running: Sequence[Running]) -> list[Entry]:
        """One token of each request that can decode, with pages for the lookahead behind the token."""
        entries = []
        for request, record in self.admission.decodable(running):
            start = record.launched_len
            entry = Entry(request, record, start, start + 1, completes_input=True, decodes=True)
            if self._take_pages(entry, max(record.allocated_len, entry.end + self._config.lookahead_tokens)):
                entries.append(entry)
        return entries

    def _free_decode_pages(self) -> bool:
        """Evict for the next decode step; if pages are still missing, retract requests, but never the last one.

        Before a retraction all passes in flight have completed, and all pages outside of the windows are freed.  False
        where no request can decode, or where a late pass or copy delays the decision.
        """
        if not self._evict_for_decode():
            if self.admission.decodable(self.decode_candidates()):
                self.ratio.decay()
            return True
        if not self._settle():
            return False
        self.custody.slide_windows(self.computing, interval=1)
        num_active = len(self.active)
        while (short := self._evict_for_decode()) and not self.loading.under_way:
            if not self.custody.sessions.release_oldest():
                if len(self.active) <= 1 and not self.custody.other_side.records:
                    break
                last = retraction_order(self.active)[0]
                retracted = events.Retracted(last.id, last.num_outputs, tuple(short.items()))
                self._retract(last, retracted, cause=FreeCause.RETRACTED)
        if len(self.active) < num_active:
            self.ratio.learn(self.active)
        if short and self.running and not self.loading.under_way:
            self.end(self.running[0], Ending(FinishReason.OUT_OF_MEMORY, "no free page for the next token"))
        return not short

    def _evict_for_decode(self) -> Need:
        """Evict until the next decode step has its pages; returns the pages still missing, by pool."""
        return self.custody.evict(self.admission.decode_need(self.decode_candidates()))

    def _retract(self, request: Request, event: events.Event, *, cause: str) -> None:
        request.setbacks.retractions += 1
        self._notice(event)
        self._requeue(request, cause=cause)

    def _reclaim(self) -> None:
        """Release the KV of idle sessions while the first waiting request lacks pages."""
        sessions = self.custody.sessions
        while sessions.records and len(self.waiting) and not (self.chunked or self.loading.ready):
            first = self.admission.in_order(self.waiting)[0]
            lacking = self.admission.lacks_beside(first, self.decode_candidates(), ratio=self.ratio.value, num_yields=0)
            if not lacking or ROWS in lacking or not sessions.release_oldest(first, including_own=self._is_alone):
                return

    def _preempt(self) -> None:
        """Preempt running requests for the first waiting request, if its priority allows it and it would then fit."""
        contention = self._contention()
        if not contention or not victims(contention.lacking, contention.yields) or not self._settle():
            return
        if contention := self._contention():
            for request in victims(contention.lacking, contention.yields):
                preempted = events.Preempted(request.id, request.num_outputs, contention.first.id)
                self._retract(request, preempted, cause=FreeCause.PREEMPTED)

    def _contention(self) -> Contention | None:
        """The first waiting request, with the running requests that it may preempt; None where there are none."""
        threshold = self._config.preemption_threshold
        has_begun = self.chunked or self.loading.ready  # these are planned before waiting requests
        if threshold is None or has_begun or not len(self.waiting):
            return None
        first, running, ratio = self.admission.in_order(self.waiting)[0], self.decode_candidates(), self.ratio.value
        rivals = [run for run in running if first.priority > run.request.priority + threshold]
        if not rivals:
            return None
        match = self.admission.match(first)
        owned = [self.custody.units_of(rival.record, but=match) for rival in rivals]
        yields = self.admission.yields(rivals, owned, ratio=ratio)
        num_yields = len(self.admission.decodable(rivals))
        lacking = self.admission.lacks_beside(first, running, ratio=ratio, num_yields=num_yields)
        return Contention(first, lacking, yields)

    def _requeue(self, request: Request, *, cause: str) -> None:
        is_swapped_out = self.custody.other_side.swap_out(request, self.custody.record(request))
        self._remove(request, cause=cause)
        if not is_swapped_out:
            self.waiting.add(request)

    def _remove(self, request: Request, *, cause: str) -> None:
        if request is self.chunked:
            self.chunked = None
        elif request in self.loading:
            self.loading.remove(request)
        else:
            self.running.remove(request)
        self.custody.release(request, cause=cause)

    def _settle(self) -> bool:
        """Complete all passes and copies in flight; False where a pass or a copy is late."""
        while self.pipeline:
            if not self._process_oldest():
                return False
        self.loading.wait()
        self._finish_loads()
        return not self.loading.under_way

    def _process_oldest(self) -> bool:
        """Process the oldest pass, for requests that still hold its records; False where it still runs."""
        completed = self.pipeline.collect()
        if completed is None:
            return False
        self.custody.departures.complete(completed.launch)
        results = completed.computed or [Computed()] * len(completed.entries)
        for entry, computed in zip(completed.entries, results, strict=True):
            if not self.custody.holds(entry.request, entry.record):
                self._notice(events.Discarded(completed.launch, entry.request.id))
            elif completed.failure is None:
                self._process(entry, computed)
            else:
                self._retry(entry.request, completed.failure)
        return True

    def _retry(self, request: Request, error: str) -> None:
        """Requeue a request of a failed pass; after too many failures the request ends."""
        request.setbacks.failures += 1
        if request.setbacks.failures > self._config.max_forward_retries:
            self.end(request, Ending(FinishReason.FORWARD_FAILED, f"{request.setbacks.failures} times: {error}"))
        else:
            self._requeue(request, cause=FreeCause.FORWARD_FAILED)

    def _process(self, entry: Entry, computed: Computed) -> None:
        """Commit the result of an entry, publish its KV, and end a request that is done."""
        request, record = entry.request, entry.record
        if request.receive(computed):
            self._outbox.note_tokens(request)
        is_done = request.finish_reason is not None or (entry.completes_input and not request.tokens_left)
        record.committed_len = min(entry.end + max(0, len(computed.tokens) - 1), len(request.tokens))
        if entry.drafts:
            record.launched_len = record.committed_len
        if is_done or not entry.decodes:
            self.custody.publish(request, end=record.committed_len)
        if is_done:
            self._remove(request, cause=FreeCause.FINISHED)
            self.note_end(request, Ending(FinishReason(request.finish_reason or FinishReason.LENGTH)))

    def _notice(self, event: events.Event) -> None:
        if self._observer:
            self._observer.notice(event)
