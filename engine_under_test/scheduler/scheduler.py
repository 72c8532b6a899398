"""Continuous batching: who computes what in which step, and when they are done.

One step: loads are taken in; time-outs; windows slide; a batch is planned (prefill first, else decode, or
both), its pages are taken, and it is launched; the oldest pass in flight is processed; backups are begun.
Without overlap that pass is the one just launched, with overlap the one before it.
"""

from collections.abc import Sequence

from engine_under_test.cache.prefix_cache import PrefixCache
from engine_under_test.cache.record import KVRecord
from engine_under_test.config import EngineConfig
from engine_under_test.errors import PoolExhausted
from engine_under_test.events import Discarded, Event, GaveWay, Parked, Paused, Preempted, RanOut, Resumed, Retracted
from engine_under_test.host.tier import HostTier
from engine_under_test.pools.memory import ROWS, KVMemory
from engine_under_test.pools.paired import Need
from engine_under_test.ports import Computed, Ports
from engine_under_test.reasons import Ending, FinishReason, FreeCause
from engine_under_test.request import Output, Request
from engine_under_test.scheduler.admission import Admission, Sources
from engine_under_test.scheduler.batch import Entry, Loading, Running
from engine_under_test.scheduler.custody import Custody
from engine_under_test.scheduler.demand import Book
from engine_under_test.scheduler.loading import LoadingQueue
from engine_under_test.scheduler.outbox import Outbox
from engine_under_test.scheduler.pipeline import Pipeline
from engine_under_test.scheduler.preempt import Rivalry, victims
from engine_under_test.scheduler.queues import WaitingQueue
from engine_under_test.scheduler.retract import NewTokenRatio, retraction_order


class Scheduler:
    """Holds every request that is not finished, in one of four places: waiting, loading, chunked, running.

    `loading` are those who wait for KV from the host, `chunked` is the one whose input is not yet launched
    whole.  A shortage defers, retracts or aborts one request; it never raises out of `step`.
    """

    def __init__(
        self, config: EngineConfig, memory: KVMemory, cache: PrefixCache, host: HostTier | None, ports: Ports
    ) -> None:
        self._observer = observer = ports.observer
        self.waiting = WaitingQueue()
        self.loading = LoadingQueue(host)
        self.chunked: Request | None = None
        self.running: list[Request] = []
        self.custody = Custody(config, memory, cache, host, observer)
        self.pipeline = Pipeline(config, memory, ports)
        self.ratio = NewTokenRatio(config)
        self.is_paused = False
        self._config = config
        self.admission = Admission(config, memory, Sources(cache, host, self.custody.sessions), observer)
        self._outbox = Outbox(observer)

    @property
    def active(self) -> list[Request]:
        """The requests that hold KV."""
        return [*self.loading, *self.computing]

    @property
    def computing(self) -> list[Request]:
        """Those of them whose input has begun to be computed."""
        return [self.chunked, *self.running] if self.chunked else list(self.running)

    @property
    def has_work(self) -> bool:
        return bool(len(self.waiting) or self.active or self._outbox or self.pipeline or self.loading.under_way)

    def step(self, now_ms: int) -> list[Output]:
        """One engine step; what clients get to see since the last one."""
        self._take_in_loads()
        self.custody.other_side.step(now_ms)
        self._expire(now_ms)
        self.custody.slide_windows(self.computing, interval=self._config.window_eviction_interval)
        entries = self._plan() if self.pipeline.has_room and not self.is_paused else []
        if entries:
            self.pipeline.launch(entries)
        if self.pipeline and not (entries and self.pipeline.has_room):
            self._process_oldest()
        if not self.active:
            self.ratio.reset()
        self.loading.back_up()
        return self._outbox.send()

    def end(self, request: Request, ending: Ending) -> None:
        """Take a request out, wherever it is; what it computed and did not publish is given up."""
        if request in self.waiting:
            self.waiting.remove(request)
        elif not self.custody.other_side.has_request(request):
            self._leave(request, cause=ending.reason)
        self.note_end(request, ending)

    def note_end(self, request: Request, ending: Ending) -> None:
        """A request that holds nothing has ended; its client hears of it with the next step."""
        self._outbox.note_end(request, ending)
        self.pipeline.speculation.forget(request)
        self.custody.sessions.end_turn(request)
        self.custody.other_side.ended(request, ending)

    def join(self, request: Request, record: KVRecord, tokens: Sequence[int]) -> None:
        """A request runs whose record came from elsewhere, with output `tokens` that the client has not seen."""
        self.custody.open(request, record)
        self.running.append(request)
        request.begin(record.protected_len)
        length = record.committed_len
        self._process(Entry(request, record, length, length, completes_input=True), Computed(tokens))

    def pause(self) -> None:
        """Launch nothing any more; whoever holds KV gives it back at once and waits."""
        if not self.is_paused:
            self.is_paused = True
            self._notice(Paused())
            for request in self.active:
                self._put_back(request, cause=FreeCause.PAUSED)

    def resume(self) -> None:
        """Go on after a pause."""
        if self.is_paused:
            self.is_paused = False
            self._notice(Resumed())

    def _take_in_loads(self) -> None:
        """Whoever waited for a transfer that has ended goes on with what is on the device now, before it is evicted."""
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
        """The next batch, with its pages: a prefill, and who runs beside it where batches are mixed; else a decode."""
        self._reclaim()
        self._preempt()
        running = self.going_on()
        entries = self._prefill(running)
        if not entries and self._make_room():
            return self.pipeline.speculation.guess(self._decode(self.going_on()))
        if entries and self._config.mixed_batches and (decodes := self._decode(running)):
            self.ratio.decay()
            entries += decodes
        return entries

    def going_on(self) -> list[Running]:
        """Who runs and has a token to compute; the last one of some may be in flight already."""
        running = [Running(request, self.custody.record(request)) for request in self.running]
        return [
            one for one in running if one.request.tokens_left > one.record.launched_len + 1 - len(one.request.tokens)
        ]

    def _prefill(self, running: Sequence[Running]) -> list[Entry]:
        """The next chunk of what has begun, then of who has loaded, then of who waits, with their pages."""
        begun = [*([self.chunked] if self.chunked else []), *self.loading.ready]
        if not begun and not len(self.waiting):
            return []
        book = self.admission.open_book(running, ratio=self.ratio.value)
        planned: list[Entry] = []
        for request in begun:
            if not self._has_begun(request):
                continue  # it has given way to one before it
            entry = self._plan_chunk(request, book, alone=not planned and self._is_alone)
            if entry:
                planned.append(entry)
            is_parked, is_cut = not entry and self._has_begun(request), entry and not entry.completes_input
            if is_parked or is_cut:
                return self._take_in(planned)
        planned += self._plan_waiting(book, alone=not planned and self._is_alone)
        return self._take_in(planned)

    def _has_begun(self, request: Request) -> bool:
        """Does it hold KV, and is some of its input still to be launched?"""
        return request is self.chunked or request in self.loading

    @property
    def _is_alone(self) -> bool:
        """Would nothing become free by itself, if nobody were admitted?"""
        return not (self.running or self.pipeline or self.loading.under_way or self.custody.other_side.records)

    def _plan_chunk(self, request: Request, book: Book, *, alone: bool) -> Entry | None:
        """The next chunk; parked while there is no room and others run, aborted when there is none at all.

        Before that those who have only loaded give way.
        """
        record = self.custody.record(request)
        if alone:
            self.custody.slide_windows([request], interval=1)
        planned = self.admission.plan_chunk(request, record, book, alone=alone)
        while planned is None and book.budget > 0 and self.custody.sessions.make_room():
            planned = self.admission.plan_chunk(request, record, book, alone=alone)
        while planned is None and alone and (others := [one for one in self.loading.ready if one is not request]):
            self._give_way(others[-1], GaveWay(others[-1].id, request.id), cause=FreeCause.GAVE_WAY)
            planned = self.admission.plan_chunk(request, record, book, alone=alone)
        if planned is None:
            self._notice(Parked(request.id, record.committed_len))
            if alone:
                self.end(request, Ending(FinishReason.OUT_OF_MEMORY, "no free page for the rest of the prompt"))
        return planned

    def _plan_waiting(self, book: Book, *, alone: bool) -> list[Entry]:
        """Who is admitted, in the waiting order, up to the first who is not or whose input is cut."""
        admitted: list[Entry] = []
        for request in self.admission.in_order(self.waiting):
            plan = self.admission.plan_new(request, book, alone=alone and not admitted and not len(self.loading))
            if plan is None:
                break
            self.waiting.remove(request)
            self.custody.open(request, plan.record)
            if isinstance(plan, Loading):
                self.loading.add(request, plan.transfer)
                continue
            request.begin(plan.start)
            admitted.append(plan)
            if not plan.completes_input:
                break
        return admitted

    def _take_in(self, planned: Sequence[Entry]) -> list[Entry]:
        """Take what was reserved; whose input ends with its entry runs from now on."""
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
        """The pages of an entry; who finds none in spite of a promise is put back, and the step goes on."""
        try:
            self.custody.grow(entry.record, length)
        except PoolExhausted as exhausted:
            request = entry.request
            self._notice(RanOut(request.id, exhausted.pool, exhausted.want, exhausted.free))
            self._put_back(request, cause=FreeCause.RAN_OUT)
            return False
        return True

    def _decode(self, running: Sequence[Running]) -> list[Entry]:
        """One token of each who can, with room for the lookahead behind it."""
        entries = []
        for request, record in self.admission.decodable(running):
            start = record.launched_len
            entry = Entry(request, record, start, start + 1, completes_input=True, decodes=True)
            if self._take_pages(entry, max(record.allocated_len, entry.end + self._config.lookahead_tokens)):
                entries.append(entry)
        return entries

    def _make_room(self) -> bool:
        """Evict for the next decode step; still short, retract whoever has least to lose, but never the last.

        Before anybody gives way, what is in flight has landed and every page that is dead under a window
        has gone.  False where nobody can decode, or a pass or a copy is late, so that nothing can be decided yet.
        """
        if not self._evict_for_decode():
            if self.admission.decodable(self.going_on()):
                self.ratio.decay()
            return True
        if not self._settle():
            return False
        self.custody.slide_windows(self.computing, interval=1)
        num_active = len(self.active)
        while (short := self._evict_for_decode()) and not self.loading.under_way:
            if not self.custody.sessions.make_room():
                if len(self.active) <= 1 and not self.custody.other_side.records:
                    break
                last = retraction_order(self.active)[0]
                self._give_way(
                    last, Retracted(last.id, last.num_outputs, tuple(short.items())), cause=FreeCause.RETRACTED
                )
        if len(self.active) < num_active:
            self.ratio.learn(self.active)
        if short and self.running and not self.loading.under_way:
            self.end(self.running[0], Ending(FinishReason.OUT_OF_MEMORY, "no free page for the next token"))
        return not short

    def _evict_for_decode(self) -> Need:
        """Evict until the next decode step has its pages; by pool, those that it still lacks."""
        return self.custody.evict(self.admission.decode_need(self.going_on()))

    def _give_way(self, request: Request, told: Event, *, cause: str) -> None:
        request.setbacks.retractions += 1
        self._notice(told)
        self._put_back(request, cause=cause)

    def _reclaim(self) -> None:
        """Idle sessions give up what they keep where the first who waits lacks pages for it."""
        sessions = self.custody.sessions
        while sessions.records and len(self.waiting) and not (self.chunked or self.loading.ready):
            first = self.admission.in_order(self.waiting)[0]
            lacking = self.admission.lacks_beside(first, self.going_on(), ratio=self.ratio.value, num_yields=0)
            if not lacking or ROWS in lacking or not sessions.make_room(first, even_its_own=self._is_alone):
                return

    def _preempt(self) -> None:
        """Let those who run give way to the first who waits, if it is that much more important and it helps."""
        rivalry = self._rivalry()
        if not rivalry or not victims(rivalry.lacking, rivalry.yields) or not self._settle():
            return
        if rivalry := self._rivalry():
            for request in victims(rivalry.lacking, rivalry.yields):
                self._give_way(
                    request, Preempted(request.id, request.num_outputs, rivalry.first.id), cause=FreeCause.PREEMPTED
                )

    def _rivalry(self) -> Rivalry | None:
        """The first who waits, and who runs and must yield to it; None where there is no such pair."""
        threshold = self._config.preemption_threshold
        has_begun = self.chunked or self.loading.ready  # who goes on first
        if threshold is None or has_begun or not len(self.waiting):
            return None
        first, running, ratio = self.admission.in_order(self.waiting)[0], self.going_on(), self.ratio.value
        rivals = [one for one in running if first.priority > one.request.priority + threshold]
        if not rivals:
            return None
        match = self.admission.match(first)
        owned = [self.custody.units_of(one.record, but=match) for one in rivals]
        yields = self.admission.yields(rivals, owned, ratio=ratio)
        num_yields = len(self.admission.decodable(rivals))
        return Rivalry(first, self.admission.lacks_beside(first, running, ratio=ratio, num_yields=num_yields), yields)

    def _put_back(self, request: Request, *, cause: str) -> None:
        is_swapped_out = self.custody.other_side.swap_out(request, self.custody.record(request))
        self._leave(request, cause=cause)
        if not is_swapped_out:
            self.waiting.add(request)

    def _leave(self, request: Request, *, cause: str) -> None:
        if request is self.chunked:
            self.chunked = None
        elif request in self.loading:
            self.loading.remove(request)
        else:
            self.running.remove(request)
        self.custody.release(request, cause=cause)

    def _settle(self) -> bool:
        """Process everything in flight, and let what is being copied end; False where a pass or a copy is late."""
        while self.pipeline:
            if not self._process_oldest():
                return False
        self.loading.wait()
        self._take_in_loads()
        return not self.loading.under_way

    def _process_oldest(self) -> bool:
        """What the oldest pass computed, where its request has not moved on; False where it still runs."""
        landed = self.pipeline.collect()
        if landed is None:
            return False
        self.custody.departures.complete(landed.launch)
        results = landed.computed or [Computed()] * len(landed.entries)
        for entry, computed in zip(landed.entries, results, strict=True):
            if not self.custody.holds(entry.request, entry.record):
                self._notice(Discarded(landed.launch, entry.request.id))
            elif landed.failure is None:
                self._process(entry, computed)
            else:
                self._retry(entry.request, landed.failure)
        return True

    def _retry(self, request: Request, error: str) -> None:
        """Put back a request of a failed pass; after too many failures it ends."""
        request.setbacks.failures += 1
        if request.setbacks.failures > self._config.max_forward_retries:
            self.end(request, Ending(FinishReason.FORWARD_FAILED, f"{request.setbacks.failures} times: {error}"))
        else:
            self._put_back(request, cause=FreeCause.FORWARD_FAILED)

    def _process(self, entry: Entry, computed: Computed) -> None:
        """Commit what counts, and what the client wants, publish what others may share, and end who is done."""
        request, record = entry.request, entry.record
        if request.receive(computed):
            self._outbox.note_news(request)
        is_done = request.finish_reason is not None or (entry.completes_input and not request.tokens_left)
        record.committed_len = min(entry.end + max(0, len(computed.tokens) - 1), len(request.tokens))
        if entry.drafts:
            record.launched_len = record.committed_len
        if is_done or not entry.decodes:
            self.custody.publish(request, end=record.committed_len)
        if is_done:
            self._leave(request, cause=FreeCause.FINISHED)
            self.note_end(request, Ending(FinishReason(request.finish_reason or FinishReason.LENGTH)))

    def _notice(self, event: Event) -> None:
        if self._observer:
            self._observer.notice(event)
