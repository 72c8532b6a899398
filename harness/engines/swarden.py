"""The adapter of our own engine: its stand-ins, its events in the words of the invariants."""

from collections.abc import Sequence
from typing import NamedTuple

import invariants.events as seen
from engine_under_test import events
from engine_under_test.config import EngineConfig
from engine_under_test.engine import create_engine
from fakes.backing import FakeBacking
from fakes.catalog import FAULTS
from fakes.clock import FakeClock
from fakes.faults import FaultPlan
from fakes.forward import FakeForward, TagRead, TagWritten
from harness.engines.capture import EngineCapture
from harness.engines.neighbour import Neighbour
from harness.engines.port import Streamed, Submission
from invariants import reference, view

VOCABULARY = 64
TRANSLATION: dict[type, type[NamedTuple]] = {
    events.Taken: seen.Taken,
    events.Given: seen.Given,
    events.Freed: seen.Freed,
    events.Refused: seen.Refused,
    events.Paired: seen.Paired,
    events.Matched: seen.Matched,
    events.Inserted: seen.Inserted,
    events.Split: seen.Split,
    events.Recovered: seen.Recovered,
    events.Tombstoned: seen.Tombstoned,
    events.Removed: seen.Removed,
    events.Evicted: seen.Evicted,
    events.Locked: seen.Locked,
    events.Unlocked: seen.Unlocked,
    events.Slid: seen.Slid,
    events.Rejected: seen.Rejected,
    events.Admitted: seen.Admitted,
    events.Parked: seen.Parked,
    events.Retracted: seen.Retracted,
    events.RanOut: seen.RanOut,
    events.Preempted: seen.Preempted,
    events.Finished: seen.Finished,
    events.Launched: seen.Launched,
    events.Late: seen.Late,
    events.Failed: seen.Failed,
    events.Discarded: seen.Discarded,
    events.Completed: seen.Completed,
    events.Paused: seen.Paused,
    events.Resumed: seen.Resumed,
    TagRead: seen.Read,
    TagWritten: seen.Written,
    seen.Fired: seen.Fired,  # told by the fault plan
}

NOT_JUDGED = frozenset(
    {events.Submitted, events.AbortAsked, events.StepBegan, events.StepEnded, events.Flushed}
)  # what was asked of the engine, which its driver knows


def translated(event: tuple[object, ...]) -> NamedTuple:
    """What the engine tells, in the words of the invariants: a type of the same name, with the same fields."""
    return tuple.__new__(TRANSLATION[type(event)], event)


class EventLog:
    """The observer: keeps what it hears until somebody takes it, translated."""

    def __init__(self) -> None:
        self._heard: list[NamedTuple] = []
        self.notice = self._heard.append

    def take(self) -> list[NamedTuple]:
        taken = [translated(event) for event in self._heard if type(event) not in NOT_JUDGED]
        self._heard.clear()
        return taken


class ReferenceModel:
    """The stand-in model's functions, as the reference computes them."""

    namespace_tag = staticmethod(reference.namespace_tag)
    next_tag = staticmethod(reference.next_tag)

    def sampled_token(self, sums: Sequence[int]) -> int:
        return reference.sampled_token(sums, VOCABULARY)


class SwardenEngine:
    """Our engine behind EnginePort, on fakes alone."""

    def __init__(self, config: EngineConfig) -> None:
        self._events = EventLog()
        self.faults = FaultPlan(FAULTS, tell=lambda fault: self._events.notice(seen.Fired(fault)))
        self._clock = FakeClock()
        self._engine = create_engine(
            config,
            forward=FakeForward(ReferenceModel(), note=self._events.notice, plan=self.faults),
            clock=self._clock,
            observer=self._events,
            backing=FakeBacking(self.faults),
        )
        self._capture = EngineCapture(self._engine)
        self._neighbour = Neighbour(self._engine.memory)
        self.pool_names: Sequence[str] = [pool.name for pool in config.pools]
        self.windows = tuple(pool.window for pool in config.pools)
        self.vocabulary = VOCABULARY
        self._steps = 0

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

    def pause(self) -> bool:
        self._engine.pause()
        return True

    def resume(self) -> None:
        self._engine.resume()

    def capture(self) -> view.Snapshot:
        outside = {pool: self._neighbour.holdings(pool) for pool in self.pool_names}
        return self._capture.capture(step=self._steps, outside=outside, now_ms=self._clock.now_ms())

    def take_events(self) -> list[NamedTuple]:
        return self._events.take()
