"""The flight recorder: the client calls of an engine since it was last empty, as an op-log for replay."""

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from swarden.engine_under_test.engine import Engine
from swarden.engine_under_test.units import common_len
from swarden.harness.core.oplog import Header
from swarden.harness.core.ops import AdvanceClock, Flush, Inject, Op, OpenSession, Pause, Pressure, Resume, Submit, Turn
from swarden.harness.core.registry import OWN, target_of
from swarden.harness.strict.outside import Outside
from swarden.harness.strict.private import OFF, record_mode
from swarden.harness.strict.recording import (
    Entry,
    RecordedAbort,
    RecordedClose,
    RecordedOpen,
    RecordedSubmit,
    RecordedTurn,
    Recording,
    Steps,
)
from swarden.invariants import events

TRANSFERS = "requests transferred from or to another engine"
LATE, FAILS = "forward.late", "forward.fails"


class FlightRecorder:
    """Records the newest `max_recorded_ops` ops (a setting of the engine), and clears them when the engine is empty.

    The clock is recorded only if the configuration has a timeout for requests or sessions.
    """

    def __init__(self) -> None:
        self._mode = record_mode(os.environ)
        self._spoken: dict[int, Sequence[int]] = {}  # by session, the tokens of its last turn
        self._alive: dict[int, None] = {}
        self._open: dict[int, OpenSession] = {}  # sessions without a close call
        self._ended: list[int] = []
        self._now_ms: int | None = None
        self._pressed: dict[str, int] = {}  # outside pages by pool, as recorded
        self._num_moves = 0  # outside moves that are recorded

    def attach(self, engine: Engine, outside: Outside) -> Mapping[type, Callable[..., None]]:
        self._engine, self._outside = engine, outside
        self._recording = Recording(self._header, max_ops=engine.config.max_recorded_ops, mode=self._mode)
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
            events.Kept: self._kept,
            events.CloseAsked: self._close_asked,
            events.SessionClosed: self._closed,
            events.HandedOver: lambda _: self._lose(TRANSFERS),
            events.Reserved: lambda _: self._lose(TRANSFERS),
            events.Proposed: lambda _: self._lose("proposals of draft tokens"),
        }

    @property
    def is_on(self) -> bool:
        """Whether a log is written."""
        return self._mode != OFF

    @property
    def truncated(self) -> str:
        """The calls and ops that a replay lacks; empty if the log is complete."""
        return self._recording.truncated

    def ops(self) -> list[Op]:
        """The recorded ops so far."""
        return self._recording.ops()

    def save(self, fingerprint: str, out: Path) -> Path:
        """Write the log below `out` under a unique name; raises OpLogError if the write fails."""
        return self._recording.save(fingerprint, out)

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
            kept = common_len(event.tokens, tuple(self._spoken.get(event.session, ())))
            self._spoken[event.session] = event.tokens
            self._record(RecordedTurn(event.request_id, event.session, Turn(**fields, kept=kept)))
        else:
            self._record(RecordedSubmit(event.request_id, Submit(**fields, namespace=event.namespace)))
        self._alive[event.request_id] = None

    def abort_asked(self, event: events.AbortAsked) -> None:
        if event.request_id in self._alive:
            self._record(RecordedAbort(event.request_id))

    def step_began(self, event: events.StepBegan) -> None:
        self._record_time(event.now_ms)
        self._begin()
        self._recording.step = Steps()

    def _opened(self, event: events.SessionOpened) -> None:
        self._record_time(event.now_ms)
        op = OpenSession(namespace=event.namespace)
        self._record(RecordedOpen(event.session, op))
        self._open[event.session] = op

    def _kept(self, event: events.Kept) -> None:
        self._spoken[event.session] = self._engine.scheduler.custody.sessions.by_id[event.session].tokens

    def _close_asked(self, event: events.CloseAsked) -> None:
        self._spoken.pop(event.session, None)
        if self._open.pop(event.session, None) is not None:
            self._record(RecordedClose(event.session))

    def _closed(self, event: events.SessionClosed) -> None:
        """Record a timeout: a session that closes without a close call has expired in this step."""
        self._spoken.pop(event.session, None)
        if self._open.pop(event.session, None) is not None:
            assert self._recording.step is not None, f"session {event.session} expired outside of a step"
            self._recording.step.expired.append(event.session)

    def step_ended(self, _event: events.StepEnded) -> None:
        assert self._recording.step is not None, "a step ended that has not begun"
        self._recording.step.ended, self._ended = self._ended, []
        for request_id in self._recording.step.ended:
            self._alive.pop(request_id, None)

    def finished(self, event: events.Finished) -> None:
        self._ended.append(event.request_id)

    def completed(self, _event: events.Completed) -> None:
        assert self._recording.step is not None, "a pass completed outside of a step"
        self._recording.step.collected += 1

    def refused(self, event: events.Refused) -> None:
        if event.want <= event.free:
            self._lose("allocations refused by a pool with free pages")

    def _header(self) -> Header:
        target = target_of(OWN)
        return Header(
            engine=OWN,
            version=target.version(),
            configs=[{**self._engine.config.to_mapping(), "role": "both"}],
            source_hash=target.source_hash(),
            mutant=next((mutant.id for mutant in target.mutants() if mutant.is_planted), None),
        )

    def _lose(self, kind: str) -> None:
        """Count a call or fault without an op, such as draft tokens or messages of another engine."""
        self._recording.lost[kind] += 1

    def _record(self, entry: Entry) -> None:
        self._begin()
        self._recording.append(entry)

    def _begin(self) -> None:
        """Prepare for the next call: append the finished step, and clear the log if the engine is empty."""
        self._recording.begin()
        if not self._alive and self._recording.entries and self._is_empty():
            self._recording.clear()
            for session, op in self._open.items():
                self._recording.append(RecordedOpen(session, op))
            if self._engine.scheduler.is_paused:
                self._recording.append(Pause())
        self._record_pressure()

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
                self._recording.append(Pressure(pool=index, pages=pages))

    def _fired(self, fault: str) -> None:
        """Record a late or failed pass, by the number of passes collected before it in this step."""
        step = self._recording.step
        assert step is not None, f"{fault} outside of a step"
        before = step.faults.get(fault)
        if before is None:
            step.faults[fault] = Inject(fault=fault, skip=step.collected, count=1)
        elif before.skip + before.count == step.collected:
            step.faults[fault] = Inject(fault=fault, skip=before.skip, count=before.count + 1)
        else:
            self._recording.lost[f"firings of {fault}"] += 1
        step.collected += fault == LATE  # a failed pass completes by an event of its own
