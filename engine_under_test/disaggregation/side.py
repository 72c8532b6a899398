"""What both sides of a pair have: a link, rooms that are numbered upwards, and somebody who listens."""

from engine_under_test.config import EngineConfig
from engine_under_test.disaggregation.payload import terms_of
from engine_under_test.errors import EngineError
from engine_under_test.events import Event
from engine_under_test.pools.memory import KVMemory
from engine_under_test.ports import Link, Observer
from engine_under_test.scheduler.other_side import OtherSide
from engine_under_test.scheduler.scheduler import Scheduler

GONE = "it is not there any more"  # why a room is over of which nothing else is known
LinkedTo = tuple[Link, Observer | None]


class Side(OtherSide):
    """One end of a link; `_last_room` is the highest that anybody came to, or was refused for."""

    def __init__(self, config: EngineConfig, memory: KVMemory, scheduler: Scheduler, linked_to: LinkedTo) -> None:
        self._config = config
        self._memory = memory
        self._scheduler = scheduler
        self._link, self._observer = linked_to
        self._last_room = 0
        self._now_ms = 0
        self._terms = terms_of(memory)

    def check_room(self, room: int) -> None:
        if room <= self._last_room:
            raise EngineError(f"room {room}: the last was {self._last_room}; give each request a higher one")

    def _notice(self, event: Event) -> None:
        if self._observer:
            self._observer.notice(event)
