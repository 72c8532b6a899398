"""The adapter of our own engine: its stand-ins, its events in the words of the invariants."""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import invariants.events as seen
from engine_under_test import events
from engine_under_test.config import EngineConfig
from engine_under_test.engine import create_engine
from fakes.clock import FakeClock
from fakes.forward import FakeForward, TagRead, TagWritten
from harness.engines.capture import EngineCapture
from harness.engines.neighbour import Neighbour
from harness.engines.port import Streamed, Submission
from invariants import reference, view

VOCABULARY = 64
TRANSLATION: dict[type, Callable[[Iterable[object]], NamedTuple]] = {
    events.Taken: seen.Taken._make,
    events.Given: seen.Given._make,
    events.Freed: seen.Freed._make,
    events.Refused: seen.Refused._make,
    events.Paired: seen.Paired._make,
    events.Matched: seen.Matched._make,
    events.Inserted: seen.Inserted._make,
    events.Split: seen.Split._make,
    events.Recovered: seen.Recovered._make,
    events.Tombstoned: seen.Tombstoned._make,
    events.Removed: seen.Removed._make,
    events.Evicted: seen.Evicted._make,
    events.Locked: seen.Locked._make,
    events.Unlocked: seen.Unlocked._make,
    events.Slid: seen.Slid._make,
    events.Rejected: seen.Rejected._make,
    events.Admitted: seen.Admitted._make,
    events.Parked: seen.Parked._make,
    events.Retracted: seen.Retracted._make,
    events.RanOut: seen.RanOut._make,
    events.Finished: seen.Finished._make,
    events.Launched: seen.Launched._make,
    events.Completed: seen.Completed._make,
    TagRead: seen.Read._make,
    TagWritten: seen.Written._make,
}


class EventLog:
    """The observer: keeps what it hears until somebody takes it, translated."""

    def __init__(self) -> None:
        self._heard: list[NamedTuple] = []
        self.notice = self._heard.append

    def take(self) -> list[NamedTuple]:
        taken = [TRANSLATION[type(event)](event) for event in self._heard]
        self._heard.clear()
        return taken


class ReferenceModel:
    """The stand-in model's functions, as the reference computes them."""

    namespace_tag = staticmethod(reference.namespace_tag)
    next_tag = staticmethod(reference.next_tag)

    def sampled_token(self, sums: Sequence[int]) -> int:
        return reference.sampled_token(sums, VOCABULARY)


class SwardenEngine:
    """Our engine behind EnginePort, with the fake forward and the fake clock."""

    vocabulary = VOCABULARY

    def __init__(self, config: EngineConfig) -> None:
        self._events = EventLog()
        self._clock = FakeClock()
        self._forward = FakeForward(ReferenceModel(), note=self._events.notice)
        self._engine = create_engine(config, forward=self._forward, clock=self._clock, observer=self._events)
        self._capture = EngineCapture(self._engine)
        self._neighbour = Neighbour(self._engine.memory)
        self._steps = 0

    @property
    def pool_names(self) -> Sequence[str]:
        return [pool.name for pool in self._engine.memory.pools]

    @property
    def windows(self) -> tuple[int | None, ...]:
        return tuple(pool.window for pool in self._engine.memory.pools)

    @property
    def has_work(self) -> bool:
        return self._engine.has_work

    def submit(self, submission: Submission) -> int:
        return self._engine.submit(
            submission.tokens,
            max_new_tokens=submission.max_new_tokens,
            stop_token_ids=submission.stop,
            namespace=submission.namespace,
            priority=submission.priority,
        )

    def abort(self, request_id: int) -> None:
        self._engine.abort(request_id)

    def step(self) -> Sequence[Streamed]:
        self._steps += 1
        return [Streamed._make(output) for output in self._engine.step()]

    def advance_clock(self, ms: int) -> None:
        self._clock.advance(ms)

    def flush(self) -> None:
        self._engine.flush()

    def pressure(self, pool: str, pages: int) -> None:
        self._neighbour.hold(self.pool_names.index(pool), pages)

    def capture(self) -> view.Snapshot:
        outside = {pool: self._neighbour.holdings(pool) for pool in self.pool_names}
        return self._capture.capture(step=self._steps, outside=outside)

    def take_events(self) -> list[NamedTuple]:
        return self._events.take()
