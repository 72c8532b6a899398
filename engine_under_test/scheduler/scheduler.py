"""Continuous batching: who computes what in which step, and when they are done.

One step: time-outs; windows slide; a batch is planned (prefill first, else decode) and its pages
are taken; it is launched; its results are processed.
"""

from collections.abc import Sequence

from engine_under_test.cache.prefix_cache import PrefixCache
from engine_under_test.config import EngineConfig
from engine_under_test.errors import PoolExhausted
from engine_under_test.events import Completed, Finished, Launched, Parked, RanOut, Retracted
from engine_under_test.pools.memory import KVMemory
from engine_under_test.ports import Forward, Observer
from engine_under_test.request import Output, Request
from engine_under_test.scheduler.admission import Admission, Planned
from engine_under_test.scheduler.batch import Entry, forward_batch
from engine_under_test.scheduler.custody import Custody
from engine_under_test.scheduler.demand import Book, Need
from engine_under_test.scheduler.queues import WaitingQueue
from engine_under_test.scheduler.retract import NewTokenRatio, retraction_order


class Scheduler:
    """Holds every request that is not finished, in one of three places: waiting, chunked, running.

    `chunked` is the one whose input is not yet computed whole.  A shortage defers, retracts or aborts
    one request; it never raises out of `step`.
    """

    def __init__(
        self, config: EngineConfig, memory: KVMemory, cache: PrefixCache, forward: Forward, observer: Observer | None
    ) -> None:
        self.waiting = WaitingQueue()
        self.chunked: Request | None = None
        self.running: list[Request] = []
        self.custody = Custody(memory, cache, observer)
        self.ratio = NewTokenRatio(config)
        self._config = config
        self._memory = memory
        self._forward = forward
        self._admission = Admission(config, memory, cache, observer)
        self._observer = observer
        self._launch = 0
        self._ended: list[Request] = []

    @property
    def active(self) -> list[Request]:
        """The requests that hold KV."""
        return [self.chunked, *self.running] if self.chunked else list(self.running)

    @property
    def has_work(self) -> bool:
        return bool(len(self.waiting) or self.chunked or self.running or self._ended)

    def step(self, now_ms: int) -> list[Output]:
        """One engine step; what clients get to see since the last one."""
        self._expire(now_ms)
        self.custody.slide_windows(self.active, interval=self._config.window_eviction_interval)
        entries = self._prefill() or self._decode()
        if entries:
            self._process(entries, self._run(entries))
        if not self.active:
            self.ratio.reset()
        return self._send(entries)

    def end(self, request: Request, reason: str) -> None:
        """Take a request out, wherever it is; what it computed and did not publish is given up."""
        if request in self.waiting:
            self.waiting.remove(request)
        else:
            self._leave(request, cause=reason)
        self.note_end(request, reason)

    def note_end(self, request: Request, reason: str) -> None:
        """A request that holds nothing has ended; its client hears of it with the next step."""
        request.finish_reason = reason
        self._ended.append(request)
        if self._observer:
            self._observer.notice(Finished(request.id, reason))

    def _expire(self, now_ms: int) -> None:
        limit = self._config.request_timeout_ms
        if limit is not None:
            for request in [*self.waiting, *self.active]:
                if now_ms - request.arrival_ms >= limit:
                    self.end(request, "timeout")

    def _prefill(self) -> list[Entry]:
        """The next chunk of what has begun, then of who waits, with their pages."""
        if not self.chunked and not (len(self.waiting) and self._memory.table.rows.num_free):
            return []
        running = [(request, self.custody.record(request)) for request in self.running]
        book = self._admission.open_book(running, ratio=self.ratio.value)
        planned = []
        if self.chunked:
            begun = self._plan_chunk(self.chunked, book)
            if begun is None:
                return []
            planned.append(begun)
        if not planned or planned[0].entry.completes_input:
            planned += self._plan_waiting(book, alone=not planned and not self.running)
        return self._take_in(planned, book)

    def _plan_chunk(self, request: Request, book: Book) -> Planned | None:
        """The next chunk; parked while there is no room and others run, aborted when there is none at all."""
        record, alone = self.custody.record(request), not self.running
        if alone:
            self.custody.slide_windows([request], interval=1)
        planned = self._admission.plan_chunk(request, record, book, alone=alone)
        if planned is None:
            if self._observer:
                self._observer.notice(Parked(request.id, record.committed_len))
            if alone:
                self.end(request, "out of memory: not one page can be had for the rest of the prompt")
        return planned

    def _plan_waiting(self, book: Book, *, alone: bool) -> list[Planned]:
        """Who is admitted, in the waiting order, up to the first who is not or whose input is cut."""
        admitted: list[Planned] = []
        for request in self._admission.in_order(self.waiting):
            plan = self._admission.plan_new(request, book, alone=alone and not admitted)
            if plan is None:
                break
            self.waiting.remove(request)
            self.custody.open(request, plan.entry.record)
            admitted.append(plan)
            if not plan.entry.completes_input:
                break
        return admitted

    def _take_in(self, planned: Sequence[Planned], book: Book) -> list[Entry]:
        """Consume the reservations; whose input ends with its entry runs from now on."""
        entries = []
        for plan in planned:
            request = plan.entry.request
            if request is self.chunked:
                self.chunked = None
            if plan.entry.completes_input:
                self.running.append(request)
            else:
                self.chunked = request
            book.consume(plan.firm)
            if self._take_pages(plan.entry):
                entries.append(plan.entry)
        return entries

    def _take_pages(self, entry: Entry) -> bool:
        """The pages of an entry; who finds none in spite of a promise is put back, and the step goes on."""
        try:
            self.custody.grow(entry.record, entry.end)
        except PoolExhausted as exhausted:
            request = entry.request
            if self._observer:
                self._observer.notice(RanOut(request.id, exhausted.pool, exhausted.want, exhausted.free))
            self._put_back(request, cause="ran out")
            return False
        return True

    def _decode(self) -> list[Entry]:
        """One token of everyone who runs, after making room for it."""
        if self.running:
            self._make_room()
        entries = []
        for request in list(self.running):
            record = self.custody.record(request)
            start = record.committed_len
            entry = Entry(request, record, start, start + 1, completes_input=True, decodes=True)
            if self._take_pages(entry):
                entries.append(entry)
        return entries

    def _make_room(self) -> None:
        """Evict for the next decode step; still short, retract whoever has least to lose, but never the last.

        Before anybody gives way every page that is dead under a window has gone too.
        """
        if not self._evict_for_decode():
            self.ratio.decay()
            return
        self.custody.slide_windows(self.active, interval=1)
        retracted = False
        while (short := self._evict_for_decode()) and len(self.active) > 1:
            self._retract(retraction_order(self.active)[0], short)
            retracted = True
        if retracted:
            self.ratio.learn(self.active)
        if short and self.running:
            self.end(self.running[0], "out of memory: the pools are too small for one more token")

    def _evict_for_decode(self) -> Need:
        """Evict until the next decode step has its pages; by pool, those that it still lacks."""
        need = self._admission.decode_need([self.custody.record(request) for request in self.running])
        return self.custody.evict(need)

    def _retract(self, request: Request, short: Need) -> None:
        request.num_retractions += 1
        if self._observer:
            self._observer.notice(Retracted(request.id, request.num_outputs, tuple(short.items())))
        self._put_back(request, cause="retracted")

    def _put_back(self, request: Request, *, cause: str) -> None:
        self._leave(request, cause=cause)
        self.waiting.add(request)

    def _leave(self, request: Request, *, cause: str) -> None:
        if request is self.chunked:
            self.chunked = None
        else:
            self.running.remove(request)
        self.custody.release(request, cause=cause)

    def _run(self, entries: Sequence[Entry]) -> list[int | None]:
        """One forward pass, awaited; what was freed meanwhile behind its fence is free after it."""
        self._launch += 1
        if self._observer:
            computed = tuple((entry.request.id, entry.start, entry.end) for entry in entries)
            self._observer.notice(Launched(self._launch, computed))
        self._forward.launch(forward_batch(self._memory, self._launch, entries))
        tokens = self._forward.collect(self._launch)
        self._memory.complete(self._launch)
        if self._observer:
            self._observer.notice(Completed(self._launch))
        return tokens

    def _process(self, entries: Sequence[Entry], tokens: Sequence[int | None]) -> None:
        """Commit what was computed, publish what others may share, and end who is done."""
        for entry, token in zip(entries, tokens, strict=True):
            request = entry.request
            entry.record.committed_len = entry.end
            if token is not None:
                request.append(token)
            is_done = request.finish_reason is not None or (entry.completes_input and not request.tokens_left)
            if is_done or not entry.decodes:
                self.custody.publish(request, end=entry.end)
            if is_done:
                self._leave(request, cause="finished")
                self.note_end(request, request.finish_reason or "length")

    def _send(self, entries: Sequence[Entry]) -> list[Output]:
        ended, self._ended = self._ended, []
        going_on = [entry.request for entry in entries if entry.request.unsent and not entry.request.finish_reason]
        return [request.send() for request in [*going_on, *ended]]
