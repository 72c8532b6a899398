"""The flight recorder: what was asked of an engine since it was last empty, as an op-log that replays it."""

import hashlib
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from msgspec import structs

from engine_under_test import events
from engine_under_test.engine import Engine
from harness.core.fingerprint import slug
from harness.core.oplog import Header, OpLog
from harness.core.ops import (
    MAX_STEPS_PER_OP,
    Abort,
    AdvanceClock,
    CloseSession,
    Flush,
    Inject,
    Op,
    OpenSession,
    Pause,
    Pressure,
    Resume,
    Step,
    Submit,
    Turn,
)
from harness.core.registry import OWN, target_of
from harness.strict.outside import Outside

ANOTHER_ENGINE = "requests of which another engine does a part"
LATE, FAILS = "forward.late", "forward.fails"


class Asked(NamedTuple):
    """A request, under the id that the engine gave it."""

    request_id: int
    op: Submit


class Said(NamedTuple):
    """A turn, under the ids of its request and of its session; which of those open that is, is known as for aborts."""

    request_id: int
    session: int
    op: Turn


class Unasked(NamedTuple):
    """An abort; which of those alive it meant is known once it is known which of them are in the log."""

    request_id: int


class Opened(NamedTuple):
    """A session, under the id that the engine gave it."""

    session: int
    op: OpenSession


class Closed(NamedTuple):
    """A client closed a session."""

    session: int


@dataclass(slots=True)
class Steps:
    """Steps in a row, and what ended in the last of them.

    `ended` are requests whose clients heard of their end, `expired` sessions that nobody had used for too long.  A
    step in which faults came true stands alone; `collected` are the passes that it asked for.
    """

    count: int = 1
    ended: list[int] = field(default_factory=list)
    expired: list[int] = field(default_factory=list)
    faults: dict[str, Inject] = field(default_factory=dict)
    collected: int = 0


Entry = Asked | Said | Unasked | Opened | Closed | Steps | Op


class FlightRecorder:
    """Keeps up to `max_recorded_ops` of the engine's configuration; begins anew whenever the engine is empty.

    What cannot be replayed is counted by name in `lost`.  The clock is kept where requests or sessions time out:
    nothing else depends on it.
    """

    def __init__(self) -> None:
        self.num_dropped = 0
        self.lost: Counter[str] = Counter()
        self._entries: deque[Entry] = deque()
        self._step: Steps | None = None  # the newest, on its own until the next thing is asked for
        self._alive: dict[int, None] = {}
        self._open: dict[int, OpenSession] = {}  # sessions that no client has closed
        self._ended: list[int] = []
        self._now_ms: int | None = None
        self._pressed: dict[str, int] = {}  # pages that the log says are held from outside
        self._num_moves = 0  # of those outside, that the log knows

    def attach(self, engine: Engine, outside: Outside) -> Mapping[type, Callable[..., None]]:
        self._engine, self._outside = engine, outside
        return {
            events.Submitted: self.submitted,
            events.AbortAsked: self.abort_asked,
            events.Flushed: lambda _: self._record(Flush()),
            events.Paused: lambda _: self._record(Pause()),
            events.Resumed: lambda _: self._record(Resume()),
            events.StepBegan: self.step_began,
            events.StepEnded: self.step_ended,
            events.Finished: self.finished,
            events.Completed: self.completed,
            events.Late: lambda _: self._came_true(LATE),
            events.Failed: lambda _: self._came_true(FAILS),
            events.Refused: self.refused,
            events.SessionOpened: self._opened,
            events.CloseAsked: self._close_asked,
            events.SessionClosed: self._closed,
            events.HandedOver: lambda _: self._lose(ANOTHER_ENGINE),
            events.Reserved: lambda _: self._lose(ANOTHER_ENGINE),
            events.Proposed: lambda _: self._lose("guesses of what comes next"),
        }

    def submitted(self, event: events.Submitted) -> None:
        """A count of new tokens below 0 and a session that is not open are refused by any engine, and have no op."""
        self._tell_time(event.arrival_ms)
        if event.max_new_tokens < 0 or (event.session and event.session not in self._open):
            return
        asked: dict[str, Any] = {
            "tokens": event.tokens,
            "max_new_tokens": event.max_new_tokens,
            "stop": event.stop_token_ids,
            "priority": event.priority,
        }
        if event.session:
            self._record(Said(event.request_id, event.session, Turn(**asked)))
        else:
            self._record(Asked(event.request_id, Submit(**asked, namespace=event.namespace)))
        self._alive[event.request_id] = None

    def abort_asked(self, event: events.AbortAsked) -> None:
        if event.request_id in self._alive:
            self._record(Unasked(event.request_id))

    def step_began(self, event: events.StepBegan) -> None:
        self._tell_time(event.now_ms)
        self._begin()
        self._step = Steps()

    def _opened(self, event: events.SessionOpened) -> None:
        self._tell_time(event.now_ms)
        op = OpenSession(namespace=event.namespace)
        self._record(Opened(event.session, op))
        self._open[event.session] = op

    def _close_asked(self, event: events.CloseAsked) -> None:
        if self._open.pop(event.session, None) is not None:
            self._record(Closed(event.session))

    def _closed(self, event: events.SessionClosed) -> None:
        """Who is open still has not been used for too long, which the engine finds in a step."""
        if self._open.pop(event.session, None) is not None:
            assert self._step is not None, f"session {event.session} expired outside of a step"
            self._step.expired.append(event.session)

    def step_ended(self, _event: events.StepEnded) -> None:
        assert self._step is not None, "a step ended that has not begun"
        self._step.ended, self._ended = self._ended, []
        for request_id in self._step.ended:
            self._alive.pop(request_id, None)

    def finished(self, event: events.Finished) -> None:
        self._ended.append(event.request_id)

    def completed(self, _event: events.Completed) -> None:
        assert self._step is not None, "a pass completed outside of a step"
        self._step.collected += 1

    def refused(self, event: events.Refused) -> None:
        if event.want <= event.free:
            self._lose("times that a pool had no memory behind its pages")

    @property
    def truncated(self) -> str:
        """What a replay does without; empty where it is all there."""
        lost = [f"{count} {what}" for what, count in sorted(self.lost.items())]
        if self.num_dropped:
            lost.insert(0, f"the first {self.num_dropped} ops, and whatever they left in the engine")
        return "; ".join(lost)

    def ops(self) -> list[Op]:
        """What was asked, up to now."""
        found: list[Op] = []
        alive: list[int] = []
        opened: list[int] = []
        for entry in [*self._entries, *self._newest()]:
            match entry:
                case Asked():
                    found.append(entry.op)
                    alive.append(entry.request_id)
                case Said() if entry.session in opened:
                    found.append(structs.replace(entry.op, session=opened.index(entry.session)))
                    alive.append(entry.request_id)
                case Opened():
                    found.append(entry.op)
                    opened.append(entry.session)
                case Closed() if entry.session in opened:
                    found.append(_closing(entry.session, opened))
                case Unasked() if entry.request_id in alive:
                    found.append(Abort(request=alive.index(entry.request_id)))
                case Steps():
                    last = found[-1] if found else None
                    if isinstance(last, Step) and last.count + entry.count <= MAX_STEPS_PER_OP:
                        found[-1] = Step(count=last.count + entry.count)
                    else:
                        found.append(Step(count=entry.count))
                    alive = [request_id for request_id in alive if request_id not in entry.ended]
                    found += [_closing(session, opened) for session in entry.expired if session in opened]
                case Op():
                    found.append(entry)
        return found

    def save(self, fingerprint: str, out: Path) -> Path:
        """Write the log below `out`, under a name of its own; raises OpLogError where that cannot be."""
        ops, target = self.ops(), target_of(OWN)
        header = Header(
            engine=OWN,
            version=target.version(),
            configs=[{**self._engine.config.to_mapping(), "role": "both"}],
            source_hash=target.source_hash(),
            mutant=next((mutant.id for mutant in target.mutants() if mutant.is_planted), None),
            faults=sorted({op.fault for op in ops if isinstance(op, Inject) and op.fault}),
            truncated=self.truncated,
        )
        log = OpLog(header, ops)
        path = out / f"{slug(fingerprint)}-{hashlib.sha256(log.to_bytes()).hexdigest()[:8]}.oplog"
        log.save(path)
        return path

    def _lose(self, what: str) -> None:
        """Note what an op-log cannot say: no op has the tokens of a guess, or what another engine sent."""
        self.lost[what] += 1

    def _record(self, entry: Entry) -> None:
        self._begin()
        self._append(entry)

    def _begin(self) -> None:
        """Something is about to be asked for: the step before it is done, and an empty engine has no past."""
        for entry in self._newest():
            self._append(entry)
        self._step = None
        if not self._alive and self._entries and self._is_empty():
            self._entries.clear()
            self.lost.clear()
            self.num_dropped = 0
            for session, op in self._open.items():
                self._append(Opened(session, op))
            if self._engine.scheduler.is_paused:
                self._append(Pause())
        self._tell_pressure()

    def _newest(self) -> Sequence[Entry]:
        """The newest step, with the faults that came true in it before it."""
        return [*self._step.faults.values(), self._step] if self._step is not None else ()

    def _append(self, entry: Entry) -> None:
        last = self._entries[-1] if self._entries else None
        if isinstance(entry, Steps) and isinstance(last, Steps) and last.count < MAX_STEPS_PER_OP and not last.expired:
            last.count += 1
            last.ended += entry.ended
            last.expired += entry.expired
            return
        self._entries.append(entry)
        if len(self._entries) >= self._engine.config.max_recorded_ops:  # one is the step under way
            self._entries.popleft()
            self.num_dropped += 1

    def _is_empty(self) -> bool:
        """Is there no work, and every unit of every pool free?"""
        memory = self._engine.memory
        on_host = memory.host.ledgers if memory.host is not None else ()
        ledgers = (*memory.ledgers.ledgers, *on_host, memory.table.rows)
        return not self._engine.has_work and all(ledger.num_free == ledger.capacity for ledger in ledgers)

    def _tell_time(self, now_ms: int) -> None:
        """Only requests and sessions that time out care."""
        config = self._engine.config
        if config.request_timeout_ms is not None or config.session_timeout_ms is not None:
            if self._now_ms is not None and now_ms > self._now_ms:
                self._record(AdvanceClock(ms=now_ms - self._now_ms))
            self._now_ms = now_ms

    def _tell_pressure(self) -> None:
        """Who is not part of the engine holds another number of pages now."""
        if self._outside.num_moves == self._num_moves:
            return
        self._num_moves = self._outside.num_moves
        for index, pool in enumerate(self._engine.memory.pools):
            pages = self._outside.count(pool.name)
            if pages != self._pressed.get(pool.name, 0):
                self._pressed[pool.name] = pages
                self._append(Pressure(pool=index, pages=pages))

    def _came_true(self, fault: str) -> None:
        """A pass was late or failed: one that was asked for after so many others in this step."""
        step = self._step
        assert step is not None, f"{fault} outside of a step"
        before = step.faults.get(fault)
        if before is None:
            step.faults[fault] = Inject(fault=fault, skip=step.collected, count=1)
        elif before.skip + before.count == step.collected:
            step.faults[fault] = Inject(fault=fault, skip=before.skip, count=before.count + 1)
        else:
            self.lost[f"firings of {fault}"] += 1
        step.collected += fault == LATE  # one that failed completes too


def _closing(session: int, opened: list[int]) -> CloseSession:
    """Close one of those open, which it is not any more."""
    place = opened.index(session)
    del opened[place]
    return CloseSession(session=place)
