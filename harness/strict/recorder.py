"""The flight recorder: the client calls of an engine since it was last empty, as an op-log for replay."""

from collections.abc import Sequence
from itertools import takewhile
from operator import eq
from typing import Any

from swarden.harness.core.ops import AdvanceClock, Flush, Inject, OpenSession, Pause, Pressure, Resume, Submit, Turn
from swarden.harness.strict import recording
from swarden.harness.strict.live import Handlers, Live
from swarden.invariants import events

TRANSFERS = "requests transferred from or to another engine"
LATE, FAILS = "forward.late", "forward.fails"


class FlightRecorder:
    """Records the newest `max_recorded_ops` ops until the engine is empty, and the clock if something can time out."""

    def __init__(self, live: Live, mode: str) -> None:
        self._live = live
        self.recording = recording.Recording(live.header, max_ops=live.max_recorded_ops, mode=mode)
        self._spoken: dict[int, Sequence[int]] = {}  # by session, the tokens of its last turn
        self._alive: dict[int, bool] = {}  # whether its client has aborted it
        self._open: dict[int, OpenSession] = {}  # sessions without a close call
        self._ended: list[int] = []
        self._early: Sequence[int] = ()  # ended requests that a replay aborts after the step
        self._now_ms: int | None = None
        self._pressed = dict(live.pressure)  # as recorded
        self._count_lost_settings()

    @property
    def handlers(self) -> Handlers:
        return {
            events.Submitted: self._submitted,
            events.AbortAsked: self.abort_asked,
            events.Flushed: lambda _: self.record(Flush()),
            events.Paused: lambda _: self.record(Pause()),
            events.Resumed: lambda _: self.record(Resume()),
            events.StepBegan: self.step_began,
            events.StepEnded: self._step_ended,
            events.Finished: self._finished,
            events.Completed: self._completed,
            events.Late: lambda _: self._fired(LATE),
            events.Failed: lambda _: self._fired(FAILS),
            events.Refused: self._refused,
            events.SessionOpened: self._opened,
            events.Kept: self._kept,
            events.CloseAsked: self._close_asked,
            events.SessionClosed: self._closed,
            events.HandedOver: lambda _: self.lose(TRANSFERS),
            events.Reserved: lambda _: self.lose(TRANSFERS),
            events.Proposed: lambda _: self.lose("proposals of draft tokens"),
        }

    def _submitted(self, event: events.Submitted) -> None:
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
            spoken = self._spoken.get(event.session, ())
            kept = sum(takewhile(bool, map(eq, event.tokens, spoken)))
            self._spoken[event.session] = event.tokens
            self.record_request(recording.RecordedTurn(event.request_id, event.session, Turn(**fields, kept=kept)))
        else:
            self.record_request(recording.RecordedSubmit(event.request_id, Submit(**fields, namespace=event.namespace)))

    def record_request(self, entry: recording.RecordedSubmit | recording.RecordedTurn) -> None:
        self.record(entry)
        self._alive[entry.request_id] = False

    def abort_asked(self, event: events.AbortAsked) -> None:
        if event.request_id in self._alive:
            self._alive[event.request_id] = True
            self.record(recording.RecordedAbort(event.request_id))

    def is_aborted(self, request_id: int) -> bool:
        """Whether the client has aborted this request, which has not ended yet."""
        return self._alive.get(request_id, False)

    def ended_early(self, request_ids: Sequence[int], *, in_step: bool) -> None:
        """Record that requests end in the step in progress, but not by their length.

        A replay has a stand-in for the model, and ends these requests by an abort: in that step, or after it.
        """
        for request_id in request_ids if in_step else ():
            if request_id in self._alive and not self._alive[request_id]:
                self.recording.append(recording.RecordedAbort(request_id))
        self._early = () if in_step else request_ids

    def restart(self) -> None:
        """Begin a new log, because the engine is empty."""
        self.recording.begin()
        self.recording.clear()
        self._count_lost_settings()

    def lose(self, kind: str) -> None:
        """Count a call or fault without an op, such as draft tokens or messages of another engine."""
        self.recording.lost[kind] += 1

    def record(self, entry: recording.Entry) -> None:
        self._begin()
        self.recording.append(entry)

    def step_began(self, event: events.StepBegan) -> None:
        self._record_time(event.now_ms)
        self._begin()
        self.recording.step = recording.Steps()

    def _opened(self, event: events.SessionOpened) -> None:
        self._record_time(event.now_ms)
        op = OpenSession(namespace=event.namespace)
        self.record(recording.RecordedOpen(event.session, op))
        self._open[event.session] = op

    def _kept(self, event: events.Kept) -> None:
        self._spoken[event.session] = self._live.session_tokens(event.session)

    def _close_asked(self, event: events.CloseAsked) -> None:
        self._spoken.pop(event.session, None)
        if self._open.pop(event.session, None) is not None:
            self.record(recording.RecordedClose(event.session))

    def _closed(self, event: events.SessionClosed) -> None:
        """Record a timeout: a session that closes without a close call has expired in this step."""
        self._spoken.pop(event.session, None)
        if self._open.pop(event.session, None) is not None:
            assert self.recording.step is not None, f"session {event.session} expired outside of a step"
            self.recording.step.expired.append(event.session)

    def _step_ended(self, _event: events.StepEnded) -> None:
        assert self.recording.step is not None, "a step ended that has not begun"
        early, self._early = self._early, ()
        ended, self._ended = self._ended, [*early]
        self.recording.step.ended = [request_id for request_id in ended if request_id not in early] if early else ended
        for request_id in self.recording.step.ended:
            self._alive.pop(request_id, None)
        for request_id in early:
            self.record(recording.RecordedAbort(request_id))

    def _finished(self, event: events.Finished) -> None:
        self._ended.append(event.request_id)

    def _completed(self, _event: events.Completed) -> None:
        if self.recording.step is not None:
            self.recording.step.collected += 1

    def _refused(self, event: events.Refused) -> None:
        if event.want <= event.free:
            self.lose("allocations refused by a pool with free pages")

    def _begin(self) -> None:
        """Prepare for the next call: append the finished step, and clear the log if the engine is empty."""
        self.recording.begin()
        if not self._alive and self.recording.entries and self._live.is_empty():
            self.recording.clear()
            for session, op in self._open.items():
                self.recording.append(recording.RecordedOpen(session, op))
            if self._live.is_paused():
                self.recording.append(Pause())
        self._record_pressure()

    def _count_lost_settings(self) -> None:
        for kind in self._live.lost:
            self.lose(kind)

    def _record_time(self, now_ms: int) -> None:
        if self._live.records_time:
            if self._now_ms is not None and now_ms > self._now_ms:
                self.record(AdvanceClock(ms=now_ms - self._now_ms))
            self._now_ms = now_ms

    def _record_pressure(self) -> None:
        """Record the pages held outside of the engine, if their number changed."""
        if self._live.pressure != self._pressed:
            before, self._pressed = self._pressed, dict(self._live.pressure)
            for index, (pool, pages) in enumerate(self._pressed.items()):
                if pages != before.get(pool, 0):
                    self.recording.append(Pressure(pool=index, pages=pages))

    def _fired(self, fault: str) -> None:
        """Record a late or failed pass, by the number of passes collected before it in this step."""
        step = self.recording.step
        assert step is not None, f"{fault} outside of a step"
        before = step.faults.get(fault)
        if before is None:
            step.faults[fault] = Inject(fault=fault, skip=step.collected, count=1)
        elif before.skip + before.count == step.collected:
            step.faults[fault] = Inject(fault=fault, skip=before.skip, count=before.count + 1)
        else:
            self.recording.lost[f"firings of {fault}"] += 1
        step.collected += fault == LATE  # a failed pass completes by an event of its own
