"""The side that decodes: it makes room for a prompt, takes in what is sent of it, and goes on from there."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

from engine_under_test.cache.match import Match
from engine_under_test.cache.prefix_cache import PrefixCache
from engine_under_test.cache.record import KVRecord
from engine_under_test.config import EngineConfig
from engine_under_test.disaggregation.payload import (
    Pages,
    disagreement,
    pages_due,
    read_pages,
    window_start,
    write_pages,
)
from engine_under_test.disaggregation.side import LinkedTo, Side, Silence
from engine_under_test.errors import PoolExhausted
from engine_under_test.events import Filled, LetGo, Matched, Reserved, SetAside, TakenOver
from engine_under_test.messages import Alive, Ask, Finale, Got, Invite, Message, Over, Parcel
from engine_under_test.pools.memory import KVMemory
from engine_under_test.pools.paired import Need
from engine_under_test.request import Request
from engine_under_test.scheduler.scheduler import Scheduler
from engine_under_test.units import align_down, handover_owner, num_pages


@dataclass(slots=True, eq=False)
class Incoming:
    """A request that waits for room, or, once it has a record, for what fills it: the page indices `missing` by pool.

    `aside` is what was computed before it gave its pages back; then nothing is to come from the other side.  `finale`
    is the last that the other side says.
    """

    request: Request
    aside: Sequence[Pages] | None = None
    terms: str = ""
    record: KVRecord | None = None
    missing: dict[str, set[int]] = field(default_factory=dict)
    finale: Finale | None = None
    silence: Silence = field(default_factory=lambda: Silence(0, 0))

    @property
    def length(self) -> int:
        """How much KV it goes on from: of the prompt, or of all but the newest token."""
        return self.request.prompt_len if self.aside is None else len(self.request.tokens) - 1

    @property
    def is_whole(self) -> bool:
        return not any(self.missing.values()) and (self.aside is not None or self.finale is not None)


class DecodeSide(Side):
    """What comes in, first come, first served whatever its priority: those who wait for room, then one room a request.

    Who is set aside goes first, so there are never more of them, outside the pools, than may run at once.
    """

    def __init__(
        self, config: EngineConfig, memory: KVMemory, cache: PrefixCache, scheduler: Scheduler, linked_to: LinkedTo
    ) -> None:
        super().__init__(config, memory, scheduler, linked_to)
        self._cache = cache
        self._aside: dict[int, Incoming] = {}  # by room, who gave its room up first stands first
        self._queue: dict[int, Incoming] = {}  # by room, who came first stands first
        self._rooms: dict[int, Incoming] = {}

    @property
    def requests(self) -> Sequence[Request]:
        """Who waits for room, in order, then who has some."""
        return [one.request for one in chain(self._who_waits(), self._rooms.values())]

    @property
    def records(self) -> Sequence[KVRecord]:
        return [one.record for one in self._rooms.values() if one.record is not None]

    @property
    def has_work(self) -> bool:
        return bool(self._aside or self._queue or self._rooms)

    def take_in(self, request: Request) -> None:
        self._last_room = max(self._last_room, request.room)
        silence = Silence(request.arrival_ms, request.arrival_ms)
        one = Incoming(request, terms=self._terms_of(request), silence=silence)
        self._queue[request.room] = one

    def step(self, now_ms: int) -> None:
        for message in self._received(now_ms):
            self._hear(message)
        if not self._scheduler.is_paused:
            self._join_whole()
            while (first := next(self._who_waits(), None)) and self._make_room_for(first):
                self._join_whole()
        for room, one in list(self._rooms.items()):
            self._look_after(room, one)
        self._look_through_the_queue()

    def _look_through_the_queue(self) -> None:
        """Who waits for room says nothing that would be answered, and hears of the other side when that one asks."""
        since_ms = self._now_ms - 2 * self._config.link_timeout_ms
        for one in [one for one in self._queue.values() if one.silence.heard_ms <= since_ms]:
            self._not_heard_of(one)

    def withholds(self, record: KVRecord, end: int) -> bool:
        """What came of a window is the last of it: whole pages that end before may need more to be found again."""
        window, page_size = self._memory.window, self._memory.page_size
        end = align_down(end, page_size)
        return window is not None and record.frontier > window_start(end, window=window, page_size=page_size)

    def sets_aside(self, request: Request, record: KVRecord) -> bool:
        """Nobody computes a prompt here: what there is of it is copied out of the pools, and comes back in its turn."""
        length, memory = record.committed_len, self._memory
        aside = []
        for pool in memory.pools:
            due = pages_due(pool, prefix_len=0, length=length, page_size=memory.page_size)
            _, kv = read_pages(memory, pool.name, record.handles[due.start : due.stop])
            aside.append(Pages(pool.name, due.start, len(due), kv.to("cpu")))
        self._aside[request.room] = Incoming(request, aside)
        self._notice(SetAside(request.id, length))
        return True

    def gives_up(self, request: Request) -> bool:
        return any(request.room in among for among in (self._aside, self._queue, self._rooms))

    def ended(self, request: Request, reason: str) -> None:
        """The other side hears of an end before everything has come."""
        is_refused = request.room > self._last_room  # at its arrival, so that it never came to a room
        one, queued = self._rooms.pop(request.room, None), self._queue.pop(request.room, None)
        self._aside.pop(request.room, None)
        self._last_room = max(self._last_room, request.room)
        if one is not None and one.record is not None:
            self._scheduler.custody.departures.release(one.record, cause=reason)
            self._notice(LetGo(request.id, reason))
        if is_refused or one or queued:
            self._say_over(request.room, reason)

    def _hear(self, message: Message) -> None:
        one = self._rooms.get(message.room)
        if one is None:
            self._hear_of_no_room(message)
            return
        if one.finale is None or isinstance(message, Parcel):  # behind the end only what is missing counts
            one.silence.ends(self._now_ms)
        match message:
            case Parcel():
                held = Pages(message.pool, message.first, message.num_pages, message.pages)
                self._fill(one, held)
                self._link.send(Got(message.room, held.pool, held.first, held.num_pages))
            case Finale():
                one.finale = message
                self._link.send(Alive(message.room))
            case Ask() if one.aside is None and one.record is not None:
                one.finale = None  # the other side has begun anew
                self._invite(one, one.record)
            case Over() if not one.is_whole:
                self._fail(one, message.reason)
            case _:
                pass

    def _hear_of_no_room(self, message: Message) -> None:
        """Who waits in the queue is known, if not invited yet; who has gone on, or ended, needs nothing any more."""
        queued = self._queue.get(message.room)
        if queued is not None:
            queued.silence.ends(self._now_ms)
            reason = disagreement(queued.terms, message.terms) if isinstance(message, Ask) else None
            if isinstance(message, Over):
                self._fail(queued, message.reason)
            elif reason is not None:
                self._scheduler.end(queued.request, reason)
            else:
                self._link.send(Alive(message.room))
        elif isinstance(message, (Ask, Parcel, Finale)) and message.room <= self._last_room:
            self._say_again_over(message.room)

    def _make_room_for(self, one: Incoming) -> bool:
        """Take a row and the pages of the first who waits: of a windowed pool those of the tail alone."""
        request, rows = one.request, self._memory.table.rows
        if not rows.num_free:
            return False
        match = self._cache.match(request.tokens[: one.length + 1], request.namespace)
        match = replace(match, reach=None)
        need, frontier = self._need(match.length, one.length), self._frontier(one.length)
        if not self._fits(need, self._cache.pages_to_lock(match, frontier=frontier)):
            return False
        if self._observer:
            self._notice(
                Matched(request.id, request.namespace, tuple(request.tokens), match.length, tuple(match.handles))
            )
        record = self._reserve(one, match, need)
        if record is None:
            return False
        among = self._queue if one.aside is None else self._aside
        del among[request.room]
        self._rooms[request.room] = one
        one.record, one.silence = record, Silence(self._now_ms, self._now_ms, self._now_ms)
        page_size = self._memory.page_size
        for pool in self._memory.pools:
            due = pages_due(pool, prefix_len=match.length, length=one.length, page_size=page_size)
            one.missing[pool.name] = set(due)
        if one.aside is None:
            self._invite(one, record)
        for held in one.aside or ():
            self._fill(one, held)
        return True

    def _who_waits(self) -> Iterator[Incoming]:
        """For room: who gave its own up goes before who comes."""
        return chain(self._aside.values(), self._queue.values())

    def _need(self, prefix_len: int, length: int) -> Need:
        page_size = self._memory.page_size
        return {
            pool.name: len(pages_due(pool, prefix_len=prefix_len, length=length, page_size=page_size))
            for pool in self._memory.pools
        }

    def _frontier(self, length: int) -> int:
        """Below it no windowed page is needed, of the prefix that is here either."""
        window, page_size = self._memory.window, self._memory.page_size
        return 0 if window is None else window_start(length, window=window, page_size=page_size)

    def _fits(self, need: Need, besides: Need) -> bool:
        """Beside those who run and those who come: each of these keeps what it may grow by, unless nobody is there."""
        scheduler = self._scheduler
        running = scheduler.going_on()
        book = scheduler.admission.open_book(running, ratio=scheduler.ratio.value)
        if not (running or self._rooms or scheduler.pipeline):
            return all(need[pool] + besides[pool] <= book.room(pool) for pool in need)
        num_active, page_size = len(running) + len(self._rooms) + 1, self._memory.page_size
        reserve = num_pages(self._config.reserved_decode_tokens, page_size)
        kept = {
            pool.name: num_active * (reserve if pool.window is None else min(reserve, 1)) for pool in self._memory.pools
        }
        return all(need[pool] + besides[pool] + kept[pool] <= book.room(pool) for pool in need)

    def _reserve(self, one: Incoming, match: Match, need: Need) -> KVRecord | None:
        """A record with room for everything; None, with nothing taken, where a pool refuses it all the same.

        |the tree's, under receipt|no windowed pages|.. tail ..|
        |0 ............ prefix_len|.........frontier|... length|
        """
        owner, memory = handover_owner(one.request.id), self._memory
        prefix_len, frontier = match.length, self._frontier(one.length)
        receipt = self._cache.slide(self._cache.lock(match), frontier)
        border = frontier // memory.page_size
        shared = memory.ledgers.without_windowed(match.handles[:border]) + list(match.handles[border:])
        self._scheduler.custody.evict(need)
        count = num_pages(one.length, memory.page_size) - match.length // memory.page_size
        tail = min([count, *(need[pool.name] for pool in memory.pools if pool.window is not None)])
        try:
            handles = memory.ledgers.take(count, owner=owner, num_windowed=tail)
        except PoolExhausted:
            self._cache.unlock(receipt)
            return None
        [row] = memory.table.rows.take(1, owner=owner)
        record = KVRecord(owner, row, receipt, prefix_len, prefix_len, prefix_len, one.length, frontier)
        record.write(memory.table, 0, [*shared, *handles])
        self._notice(Reserved(one.request.id, prefix_len, one.length, tuple(need.items())))
        return record

    def _fill(self, one: Incoming, held: Pages) -> None:
        """Write what is missing of it; what has come before stays as it is."""
        assert one.record is not None, f"request {one.request.id} has no room for what has come"
        missing = one.missing.get(held.pool, set())
        written = dict(write_pages(self._memory, held, one.record.handles, missing))
        missing.difference_update(written)
        if written:
            self._notice(Filled(one.request.id, held.pool, tuple(written), tuple(written.values())))

    def _join_whole(self) -> None:
        """Who has everything runs from now on; the other side may forget it."""
        for room, one in list(self._rooms.items()):
            if one.is_whole:
                assert one.record is not None, f"room {room} has no record"
                record, tokens = one.record, one.finale.tokens if one.finale else ()
                del self._rooms[room]
                record.committed_len = record.launched_len = one.length
                self._scheduler.custody.departures.give(record, one.request.owner)
                if one.aside is None:
                    self._say_over(room)
                self._notice(TakenOver(one.request.id, one.length, tokens))
                self._scheduler.join(one.request, record, tokens)

    def _look_after(self, room: int, one: Incoming) -> None:
        """Say again what is not answered, and give up who is not heard of."""
        if one.aside is not None or one.is_whole:
            return
        if one.silence.is_final(self._now_ms, timeout_ms=self._config.link_timeout_ms):
            self._not_heard_of(one)
        elif self._now_ms - one.silence.tried_ms >= self._config.link_retry_ms:
            assert one.record is not None, f"room {room} has no record"
            one.silence.asked(self._now_ms)
            self._invite(one, one.record)

    def _invite(self, one: Incoming, record: KVRecord) -> None:
        self._link.send(Invite(one.request.room, record.protected_len, one.terms))

    def _not_heard_of(self, one: Incoming) -> None:
        who = "the prefill side has not been heard of" if one.finale is None else "what is missing of it has not come"
        self._scheduler.end(one.request, f"{who} for {one.silence.lasts_ms(self._now_ms)} ms")

    def _fail(self, one: Incoming, reason: str) -> None:
        self._scheduler.end(one.request, f"the prefill side has ended it: {reason}")
