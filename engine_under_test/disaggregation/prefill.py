"""The side that computes prompts: it sends what it has computed, and holds it until the other side has it."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from engine_under_test.cache.record import KVRecord
from engine_under_test.config import EngineConfig
from engine_under_test.disaggregation.payload import disagreement, pages_due, pieces, read_pages
from engine_under_test.disaggregation.side import LinkedTo, Side, Silence
from engine_under_test.events import HandedOver, Invited, LetGo, Sent
from engine_under_test.messages import Alive, Ask, Finale, Got, Invite, Message, Over, Parcel
from engine_under_test.pools.memory import KVMemory
from engine_under_test.request import Request
from engine_under_test.scheduler.scheduler import Scheduler
from engine_under_test.units import align_down, handover_owner

WHOLE = "it has everything already"  # why it is over for the decode side, where that gives no reason


class Stretch(NamedTuple):
    """Pages of one pool: `num_pages` from page index `first` of a prompt on."""

    pool: str
    first: int
    num_pages: int


@dataclass(slots=True, eq=False)
class Outgoing:
    """A request whose KV goes to the other side, which has [0, prefix_len) of it.

    It waits for an invitation (None of a prefix_len), then it is the scheduler's; when it has ended there, its record
    is held here, and from the next step on it `has_waited`.  `sent_len` tokens of the pools that keep everything are on
    their way; what has not arrived of all that was sent is `unheard_of`.
    """

    request: Request
    terms: str
    silence: Silence
    has_waited: bool = True
    prefix_len: int | None = None
    sent_len: int = 0
    unheard_of: dict[Stretch, None] = field(default_factory=dict)
    record: KVRecord | None = None
    finale: Finale | None = None

    @property
    def waits(self) -> bool:
        """Does it hear of the other side, or of nobody?"""
        return self.prefix_len is None or self.record is not None


class PrefillSide(Side):
    """What goes out: one room a request, from its arrival until the other side has no use for it any more."""

    def __init__(self, config: EngineConfig, memory: KVMemory, scheduler: Scheduler, linked_to: LinkedTo) -> None:
        super().__init__(config, memory, scheduler, linked_to)
        self._rooms: dict[int, Outgoing] = {}

    @property
    def requests(self) -> Sequence[Request]:
        return [one.request for one in self._rooms.values() if one.prefix_len is None]

    @property
    def records(self) -> Sequence[KVRecord]:
        return [one.record for one in self._rooms.values() if one.record is not None]

    @property
    def has_work(self) -> bool:
        return bool(self._rooms)

    def take_in(self, request: Request) -> None:
        self._last_room = max(self._last_room, request.room)
        terms, arrival_ms = self._terms_of(request), request.arrival_ms
        self._rooms[request.room] = Outgoing(request, terms, Silence(arrival_ms, arrival_ms, arrival_ms))
        self._link.send(Ask(request.room, terms))

    def step(self, now_ms: int) -> None:
        for message in self._received(now_ms):
            self._hear(message)
        for room, one in list(self._rooms.items()):
            if not one.has_waited:  # what the pass took that it was computed in is not the other side's silence
                one.has_waited, one.silence = True, Silence(now_ms, now_ms, now_ms)
            if one.waits and one.silence.is_final(now_ms, timeout_ms=self._config.link_timeout_ms):
                silent_ms = one.silence.lasts_ms(now_ms)
                self._give_up(room, f"the decode side has not been heard of for {silent_ms} ms")
            elif one.waits and now_ms - one.silence.tried_ms >= self._patience_ms(one):
                self._say_again(room, one)

    def published(self, request: Request, record: KVRecord) -> None:
        """Whole pages go out as soon as they are computed, those of a window only when the prompt is done."""
        one = self._rooms[request.room]
        end = align_down(record.committed_len, self._memory.page_size)
        for pool in self._memory.pools:
            if pool.window is None:
                self._send(one, pool.name, range(one.sent_len // self._memory.page_size, end // self._memory.page_size))
        one.sent_len = max(one.sent_len, end)

    def inherits(self, request: Request, record: KVRecord) -> bool:
        """The rest goes out; the record is held, row and lock and all."""
        one, length = self._rooms[request.room], record.committed_len
        one.record, one.has_waited = record, False
        self._scheduler.custody.departures.give(record, handover_owner(request.id))
        self._notice(HandedOver(request.id, length))
        page_size = self._memory.page_size
        for pool in self._memory.pools:
            prefix_len = one.sent_len if pool.window is None else one.prefix_len or 0
            self._send(one, pool.name, pages_due(pool, prefix_len=prefix_len, length=length, page_size=page_size))
        one.finale = Finale(request.room, tuple(request.tokens[request.prompt_len :]))
        self._link.send(one.finale)
        return True

    def sets_aside(self, request: Request, record: KVRecord) -> bool:
        """What is computed again is sent again: what it was read from may go at once."""
        one = self._rooms[request.room]
        one.sent_len = one.prefix_len or 0
        one.unheard_of.clear()
        return False

    def gives_up(self, request: Request) -> bool:
        one = self._rooms.get(request.room)
        return one is not None and one.prefix_len is None

    def ended(self, request: Request, reason: str) -> None:
        """The other side hears of an end before everything was sent."""
        one = self._rooms.get(request.room)
        if one is None or one.record is None:
            self._rooms.pop(request.room, None)
            self._last_room = max(self._last_room, request.room)
            self._say_over(request.room, reason)

    def _hear(self, message: Message) -> None:
        one = self._rooms.get(message.room)
        if one is not None:
            one.silence.ends(self._now_ms)
        match message:
            case Invite():
                self._invited(message, one)
            case Got() if one is not None:
                one.unheard_of.pop(Stretch(message.pool, message.first, message.num_pages), None)
            case Over() if one is not None:
                self._over(message, one)
            case _:
                pass

    def _invited(self, invite: Invite, one: Outgoing | None) -> None:
        """Nobody is invited to a room that has been left; to one that was never entered somebody may be still."""
        if one is None:
            if invite.room <= self._last_room:
                self._say_again_over(invite.room)
        elif reason := disagreement(one.terms, invite.terms):
            self._give_up(invite.room, reason)
        elif one.prefix_len is None:
            one.prefix_len = one.sent_len = invite.prefix_len
            self._notice(Invited(one.request.id, invite.prefix_len))
            self._scheduler.waiting.add(one.request)
            self._link.send(Alive(invite.room))
        elif one.prefix_len != invite.prefix_len:
            self._give_up(invite.room, f"the decode side has begun anew, with {invite.prefix_len} tokens of the prompt")
        else:
            self._link.send(Alive(invite.room))

    def _over(self, over: Over, one: Outgoing) -> None:
        if one.record is None:
            self._give_up(over.room, f"the decode side has ended it: {over.reason or WHOLE}")
        else:
            self._let_go(over.room, over.reason or "handed over")

    def _give_up(self, room: int, reason: str) -> None:
        """Nobody wants it, or can be asked."""
        one = self._rooms[room]
        if one.record is None:
            self._scheduler.end(one.request, reason)
        else:
            self._say_over(room, reason)
            self._let_go(room, reason)

    def _let_go(self, room: int, cause: str) -> None:
        one = self._rooms.pop(room)
        assert one.record is not None, f"room {room} holds nothing"
        self._scheduler.custody.departures.release(one.record, cause=cause)
        self._notice(LetGo(one.request.id, cause))

    def _patience_ms(self, one: Outgoing) -> int:
        """Thousands may wait for an invitation: who was told that it is known there asks half-way to the time-out."""
        is_known = one.record is None and one.silence.unanswered_ms is None
        return self._config.link_timeout_ms // 2 if is_known else self._config.link_retry_ms

    def _say_again(self, room: int, one: Outgoing) -> None:
        one.silence.asked(self._now_ms)
        if one.record is None:
            self._link.send(Ask(room, one.terms))
            return
        for stretch in one.unheard_of if self._is_clear else ():
            self._ship(one, stretch)
        assert one.finale is not None, f"room {room} is held, and has no end"
        self._link.send(one.finale)

    def _send(self, one: Outgoing, pool: str, due: range) -> None:
        for piece in pieces(self._memory, pool, due):
            stretch = Stretch(pool, piece.start, len(piece))
            one.unheard_of[stretch] = None
            self._ship(one, stretch)

    def _ship(self, one: Outgoing, stretch: Stretch) -> None:
        record, (pool, first, count) = one.record or self._scheduler.custody.record(one.request), stretch
        pages, kv = read_pages(self._memory, pool, record.handles[first : first + count])
        self._notice(Sent(one.request.id, pool, first, tuple(pages)))
        self._link.send(Parcel(one.request.room, pool, first, count, kv))
