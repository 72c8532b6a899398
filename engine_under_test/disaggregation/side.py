"""What both sides of a pair have: a link, rooms that are numbered upwards, and somebody who listens."""

from dataclasses import dataclass

from engine_under_test.config import EngineConfig
from engine_under_test.disaggregation.payload import request_terms, terms_of
from engine_under_test.errors import EngineError
from engine_under_test.events import Event
from engine_under_test.messages import Message, Over
from engine_under_test.pools.memory import KVMemory
from engine_under_test.ports import Link, Observer
from engine_under_test.request import Request
from engine_under_test.scheduler.other_side import OtherSide
from engine_under_test.scheduler.scheduler import Scheduler

GONE = "it is not there any more"  # why a room is over of which nothing else is known
MOST_ENDS = 4096  # rooms whose end is remembered, for a side that comes to it later or has not heard of it
LinkedTo = tuple[Link, Observer | None]


@dataclass(slots=True)
class Silence:
    """Of one room: when something was last heard of the other side, when it was last asked, and first in vain."""

    heard_ms: int
    tried_ms: int
    unanswered_ms: int | None = None

    def ends(self, now_ms: int) -> None:
        """Something has come."""
        self.heard_ms, self.unanswered_ms = now_ms, None

    def asked(self, now_ms: int) -> None:
        """Something was said that is to be answered."""
        self.tried_ms = now_ms
        if self.unanswered_ms is None:
            self.unanswered_ms = now_ms

    def lasts_ms(self, now_ms: int) -> int:
        return now_ms - self.heard_ms

    def is_final(self, now_ms: int, *, timeout_ms: int) -> bool:
        """Is nobody there?  Who was busy itself has asked late, and leaves half of the time for an answer."""
        in_vain_ms = 0 if self.unanswered_ms is None else now_ms - self.unanswered_ms
        return self.lasts_ms(now_ms) >= timeout_ms and in_vain_ms >= timeout_ms // 2


class Side(OtherSide):
    """One end of a link; `_last_room` is the highest that anybody came to, or was refused for.

    `_ends` are the reasons of the rooms that ended here last: what was said of an end may be lost, or come too early.
    """

    def __init__(self, config: EngineConfig, memory: KVMemory, scheduler: Scheduler, linked_to: LinkedTo) -> None:
        self._config = config
        self._memory = memory
        self._scheduler = scheduler
        self._link, self._observer = linked_to
        self._last_room = 0
        self._ends: dict[int, str] = {}
        self._now_ms = 0
        self._is_clear = True  # have all pages left that were sent before this step
        self._terms = terms_of(memory)

    def check_room(self, room: int) -> None:
        if room <= self._last_room:
            raise EngineError(f"room {room}: the last was {self._last_room}; give each request a higher one")

    def _received(self, now_ms: int) -> list[Message]:
        """A step begins: what has come since the last, after a look at what has left."""
        self._now_ms, self._is_clear = now_ms, self._link.is_clear
        return self._link.receive()

    def _say_over(self, room: int, reason: str = "") -> None:
        """A room has ended here: with a reason, or because everything has come."""
        self._ends[room] = reason
        if len(self._ends) > MOST_ENDS:
            del self._ends[next(iter(self._ends))]
        self._link.send(Over(room, reason))

    def _say_again_over(self, room: int) -> None:
        """Somebody speaks of a room that nobody is in any more."""
        self._link.send(Over(room, self._ends.get(room, GONE)))

    def _terms_of(self, request: Request) -> str:
        return f"{self._terms}; {request_terms(request)}"

    def _notice(self, event: Event) -> None:
        if self._observer:
            self._observer.notice(event)
