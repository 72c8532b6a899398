"""The flight recorder: the client calls of an engine since it was last empty, as an op-log for replay."""

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

TRANSFERS = "requests transferred from or to another engine"
LATE, FAILS = "forward.late", "forward.fails"


class RecordedSubmit(NamedTuple):
    """A submitted request, with the id that the engine assigned."""

    request_id: int
    op: Submit


class RecordedTurn(NamedTuple):
    """A turn of a session, with both ids. The ordinal of the session is computed when the op-log is built."""

    request_id: int
    session: int
    op: Turn


class RecordedAbort(NamedTuple):
    """An abort. The ordinal of its request is computed when the op-log is built."""

    request_id: int


class RecordedOpen(NamedTuple):
    """An opened session, with the id that the engine assigned."""

    session: int
    op: OpenSession


class RecordedClose(NamedTuple):
    """A session that a client closed."""

    session: int


@dataclass(slots=True)
class Steps:
    """Consecutive steps: `ended` are the requests whose end was streamed, `expired` the sessions that timed out.

    Sessions expire only in the last step, faults fire only in the first one.  `collected` is the number of passes that
    completed or were late in the step.
    """

    count: int = 1
    ended: list[int] = field(default_factory=list)
    expired: list[int] = field(default_factory=list)
    faults: dict[str, Inject] = field(default_factory=dict)
    collected: int = 0


Entry = RecordedSubmit | RecordedTurn | RecordedAbort | RecordedOpen | RecordedClose | Steps | Op


class FlightRecorder:
    """Keeps the newest `max_recorded_ops` ops (a setting of the engine), and clears them when the engine is empty.

    `lost` counts, by name, the calls and faults that no op can replay.  The clock is recorded only if the configuration
    has a timeout for requests or sessions.
    """

    def __init__(self) -> None:
        self.num_dropped = 0
        self.lost: Counter[str] = Counter()
        self._entries: deque[Entry] = deque()
        self._step: Steps | None = None  # the newest, kept apart until the next call
        self._alive: dict[int, None] = {}
        self._open: dict[int, OpenSession] = {}  # sessions without a close call
        self._ended: list[int] = []
        self._now_ms: int | None = None
        self._pressed: dict[str, int] = {}  # outside pages by pool, as recorded
        self._num_moves = 0  # outside moves that are recorded

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
            events.Late: lambda _: self._fired(LATE),
            events.Failed: lambda _: self._fired(FAILS),
            events.Refused: self.refused,
            events.SessionOpened: self._opened,
            events.CloseAsked: self._close_asked,
            events.SessionClosed: self._closed,
            events.HandedOver: lambda _: self._lose(TRANSFERS),
            events.Reserved: lambda _: self._lose(TRANSFERS),
            events.Proposed: lambda _: self._lose("proposals of draft tokens"),
        }

    def submitted(self, event: events.Submitted) -> None:
        """Record a submission. Negative new tokens and closed sessions are rejected by any engine, and have no op."""
        self._record_time(event.arrival_ms)
        if event.max_new_tokens < 0 or (event.session and event.session not in self._open):
            return
        fields: dict[str, Any] = {
            "tokens": event.tokens,
            "max_new_tokens": event.max_new_tokens,
            "stop": event.stop_token_ids,
            "priority": event.priority,
        }
        if event.session:
            self._record(RecordedTurn(event.request_id, event.session, Turn(**fields)))
        else:
            self._record(RecordedSubmit(event.request_id, Submit(**fields, namespace=event.namespace)))
        self._alive[event.request_id] = None

    def abort_asked(self, event: events.AbortAsked) -> None:
        if event.request_id in self._alive:
            self._record(RecordedAbort(event.request_id))

    def step_began(self, event: events.StepBegan) -> None:
        self._record_time(event.now_ms)
        self._begin()
        self._step = Steps()

    def _opened(self, event: events.SessionOpened) -> None:
        self._record_time(event.now_ms)
        op = OpenSession(namespace=event.namespace)
        self._record(RecordedOpen(event.session, op))
        self._open[event.session] = op

    def _close_asked(self, event: events.CloseAsked) -> None:
        if self._open.pop(event.session, None) is not None:
            self._record(RecordedClose(event.session))

    def _closed(self, event: events.SessionClosed) -> None:
        """Record a timeout: a session that closes without a close call has expired in this step."""
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
            self._lose("allocations refused by a pool with free pages")

    @property
    def truncated(self) -> str:
        """The calls and ops that a replay lacks; empty if the log is complete."""
        lost = [f"{count} {kind}" for kind, count in sorted(self.lost.items())]
        if self.num_dropped:
            lost.insert(0, f"the first {self.num_dropped} ops and their effects on the engine")
        return "; ".join(lost)

    def ops(self) -> list[Op]:
        """The recorded ops so far."""
        found: list[Op] = []
        alive: list[int] = []
        opened: list[int] = []
        for entry in [*self._entries, *self._newest()]:
            match entry:
                case RecordedSubmit():
                    found.append(entry.op)
                    alive.append(entry.request_id)
                case RecordedTurn() if entry.session in opened:
                    found.append(structs.replace(entry.op, session=opened.index(entry.session)))
                    alive.append(entry.request_id)
                case RecordedOpen():
                    found.append(entry.op)
                    opened.append(entry.session)
                case RecordedClose() if entry.session in opened:
                    found.append(_closing(entry.session, opened))
                case RecordedAbort() if entry.request_id in alive:
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
        """Write the log below `out` under a unique name; raises OpLogError if the write fails."""
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

    def _lose(self, kind: str) -> None:
        """Count a call or fault without an op, such as draft tokens or messages of another engine."""
        self.lost[kind] += 1

    def _record(self, entry: Entry) -> None:
        self._begin()
        self._append(entry)

    def _begin(self) -> None:
        """Prepare for the next call: append the finished step, and clear the log if the engine is empty."""
        for entry in self._newest():
            self._append(entry)
        self._step = None
        if not self._alive and self._entries and self._is_empty():
            self._entries.clear()
            self.lost.clear()
            self.num_dropped = 0
            for session, op in self._open.items():
                self._append(RecordedOpen(session, op))
            if self._engine.scheduler.is_paused:
                self._append(Pause())
        self._record_pressure()

    def _newest(self) -> Sequence[Entry]:
        """The newest step, after the faults that fired in it."""
        return [*self._step.faults.values(), self._step] if self._step is not None else ()

    def _append(self, entry: Entry) -> None:
        last = self._entries[-1] if self._entries else None
        if isinstance(entry, Steps) and isinstance(last, Steps) and last.count < MAX_STEPS_PER_OP and not last.expired:
            last.count += 1
            last.ended += entry.ended
            last.expired += entry.expired
            return
        self._entries.append(entry)
        if len(self._entries) >= self._engine.config.max_recorded_ops:  # one more is the step in progress
            self._entries.popleft()
            self.num_dropped += 1

    def _is_empty(self) -> bool:
        """Whether there is no work and every unit of every pool is free."""
        memory = self._engine.memory
        on_host = memory.host.ledgers if memory.host is not None else ()
        ledgers = (*memory.ledgers.ledgers, *on_host, memory.table.rows)
        return not self._engine.has_work and all(ledger.num_free == ledger.capacity for ledger in ledgers)

    def _record_time(self, now_ms: int) -> None:
        """Record the clock if the configuration has a timeout."""
        config = self._engine.config
        if config.request_timeout_ms is not None or config.session_timeout_ms is not None:
            if self._now_ms is not None and now_ms > self._now_ms:
                self._record(AdvanceClock(ms=now_ms - self._now_ms))
            self._now_ms = now_ms

    def _record_pressure(self) -> None:
        """Record the pages held outside of the engine, if their number changed."""
        if self._outside.num_moves == self._num_moves:
            return
        self._num_moves = self._outside.num_moves
        for index, pool in enumerate(self._engine.memory.pools):
            pages = self._outside.count(pool.name)
            if pages != self._pressed.get(pool.name, 0):
                self._pressed[pool.name] = pages
                self._append(Pressure(pool=index, pages=pages))

    def _fired(self, fault: str) -> None:
        """Record a late or failed pass, by the number of passes collected before it in this step."""
        step = self._step
        assert step is not None, f"{fault} outside of a step"
        before = step.faults.get(fault)
        if before is None:
            step.faults[fault] = Inject(fault=fault, skip=step.collected, count=1)
        elif before.skip + before.count == step.collected:
            step.faults[fault] = Inject(fault=fault, skip=before.skip, count=before.count + 1)
        else:
            self.lost[f"firings of {fault}"] += 1
        step.collected += fault == LATE  # a failed pass completes by an event of its own


def _closing(session: int, opened: list[int]) -> CloseSession:
    """The op that closes a session, which is removed from `opened`."""
    place = opened.index(session)
    del opened[place]
    return CloseSession(session=place)
