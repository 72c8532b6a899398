"""The strict check of a scheduler that a server has built, and the calls by which it follows that scheduler.

An iteration is one pass through the event loop: it takes inputs, launches a batch and processes a result.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import ModuleType
from typing import Any, NamedTuple

import msgspec

import swarden.invariants.events as seen
from swarden.harness.core.errors import UsageError
from swarden.harness.core.oplog import Header
from swarden.harness.core.ops import Op, Pause, Resume, Submit
from swarden.harness.engines.sglang.adapter import CODE, REPORTED
from swarden.harness.engines.sglang.audited import AuditedRecords
from swarden.harness.engines.sglang.boot import SglangRelease
from swarden.harness.engines.sglang.capture import SglangFacts
from swarden.harness.engines.sglang.forward import entries_of
from swarden.harness.engines.sglang.moves import AllocatorMove, with_owners
from swarden.harness.engines.sglang.options import max_request_len
from swarden.harness.engines.sglang.requests import SglangRequest, SglangRequests, held, is_rejected
from swarden.harness.engines.sglang.running import LiveMemory, built_of, config_of, differences, reachable, sessions_of
from swarden.harness.kit.calls import Wrap, intercept
from swarden.harness.kit.reported import names_of
from swarden.harness.kit.settings import flat
from swarden.harness.strict.follow import MAX_OPS, Attachment, Follow, UnknownScheduler
from swarden.harness.strict.follow import wrap as wrap_calls
from swarden.harness.strict.live import Compare, Live
from swarden.harness.strict.owners import OwnerTable
from swarden.harness.strict.recording import RecordedSubmit
from swarden.invariants.events import FinishReason
from swarden.invariants.view import Snapshot

RETRACT = "retract"
KNOWN_LOOPS = ("event_loop_normal", "event_loop_overlap")
OF_THE_PORT = (
    *(seen.Fired, seen.GivenUp, seen.Kept, seen.Lent, seen.Paused),
    *(seen.Read, seen.Rejected, seen.Resumed, seen.TurnRefused, seen.Written),
)


class LiveFacts(SglangFacts):
    """The facts of a running scheduler, which a server calls, for a census; with its sessions, if it serves any."""

    code = CODE
    reported = REPORTED - names_of(OF_THE_PORT)
    submit: Any = None
    abort: Any = None
    step: Any = None

    def __init__(self, release: SglangRelease, memory: LiveMemory, requests: SglangRequests) -> None:
        super().__init__()
        self.requests = requests
        self.open_sessions = sessions_of(memory.built.scheduler, memory.built.memory.tree)
        self.parts = [] if self.open_sessions is None else [self.open_sessions]
        self.walk(release, memory.config, memory.built)

    def added(self, request: SglangRequest) -> None:
        session = getattr(request.req, "session", None)
        if self.open_sessions is not None and session is not None and session.streaming:
            request.session = self.open_sessions.number_of(session.session_id)
            request.is_hidden = is_rejected(request.req)

    def capture(self) -> Snapshot:
        try:
            return super().capture()
        except NotImplementedError as error:
            remedy = "set SGLANG_UNIFIED_RADIX_TREE_CORE_BACKEND=python, or choose level audit"
            raise UnknownScheduler(f"its tree shows no nodes; {remedy}") from error


class SglangAttachment(Attachment):
    """Follows the event loop of a scheduler; an iteration ends when the next one begins to take its inputs.

    Between two iterations all records, locks and queues are consistent, in the normal and in the overlapped loop; a
    pass whose result is not processed yet is in flight.
    """

    def __init__(self, release: SglangRelease, scheduler: Any, wrap: Wrap = intercept) -> None:
        """Raises UnknownScheduler if the scheduler has parts that the check does not know."""
        super().__init__(wrap)
        self._release, self._built = release, built_of(release, scheduler)
        self._config = config_of(release, self._built)
        self._memory = memory = LiveMemory(release, self._config, self._built)
        self._requests = SglangRequests(
            release, self._notice, max_len=max_request_len(release, self._config), have_priorities=False
        )
        self._is_busy = self._is_watched = False
        self._records: AuditedRecords | None = None  # for an audit
        self._state: LiveFacts | None = None  # for a census
        configs = [msgspec.to_builtins(flat(self._config))]
        self.live = Live(
            handlers={},
            terms=memory.terms,
            uncached=memory.uncached,
            pools=memory.pools(),
            holders=self._audited,
            capture=self._capture,
            moves=(AllocatorMove,),
            owned=lambda events, before, after: [event for _, event in with_owners(events, before, after)],
            has_inputs=lambda: self._is_in_step,
            needs_no_pass=lambda: not self._requests,
            is_paused=lambda: bool(scheduler._engine_paused),
            header=lambda: Header(engine="sglang", version=release.text, configs=configs),
            max_recorded_ops=MAX_OPS,
            lost=differences(self._built),
        )

    def iteration_ended(self) -> None:
        """Check the iteration before, unless there was nothing to do in it."""
        is_busy = bool(self._requests) and not self._built.scheduler._engine_paused
        if not (is_busy or self._is_busy):
            return
        self._is_busy = is_busy
        self._abandon_lost()
        early = [ended for ended in self._requests.forget_ended() if ended.finish_reason != FinishReason.LENGTH]
        for request in early:
            is_aborted = self._recorder.is_aborted(request.id)
            if len(request.req.output_ids) < 2 and not is_aborted and not self._built.scheduler.enable_overlap:
                self._recorder.lose("requests that ended with their first token")
        self._end_step([request.id for request in early], in_step=True)

    def inputs_taken(self) -> None:
        """The requests and commands of this iteration have been taken in."""
        if self._has_inputs:
            self._is_busy = True
            self._abandon_lost()
            self._begin_step()

    def added(self, req: Any) -> None:
        """A request enters the queue; a retracted one returns to it."""
        if hasattr(req, "swarden"):
            return
        self._has_inputs = True
        request = SglangRequest(self._requests.next_id(), req, self._built.namespace_of(req.extra_key))
        if self._state is not None:
            self._state.added(request)
        self._requests.add(request)
        if is_rejected(req):
            self._recorder.lose("requests that were rejected on arrival")
        else:
            op = Submit(
                tokens=tuple(req.origin_input_ids),
                max_new_tokens=req.sampling_params.max_new_tokens,
                priority=getattr(req, "priority", None) or 0,
                namespace=request.namespace,
            )
            self._recorder.record_request(RecordedSubmit(request.id, op))
        if getattr(req, "session", None) is not None:
            self._recorder.lose("turns of sessions, which are recorded as requests of their own")

    def aborting(self, message: Any) -> None:
        """Requests are about to be aborted: those whose id begins with that of the message, or all."""
        self._has_inputs = True
        for request in self._requests.unfinished.values():
            if message.abort_all or request.req.rid.startswith(message.rid):
                self._aborted(request.id)

    def launching(self, batch: Any) -> None:
        """A pass is about to be launched."""
        if self._state is not None:
            self._requests.report_changes()
            self._notice(self._state.passes.launch(entries_of(batch, self._built.memory)).launched())

    def completing(self) -> None:
        """The result of a pass is about to be processed."""
        if self._state is not None:
            self._requests.report_changes()
            if self._state.in_flight:
                done = self._state.passes.complete(self._state.in_flight[0])
                self._events.extend(done.completed(self._state.is_used))

    def commanded(self, command: Op | str) -> None:
        """A client has given a command: an op to record, or a text for a command that op-logs do not have."""
        self._has_inputs = True
        if isinstance(command, str):
            self._recorder.lose(command)
        else:
            self._recorder.record(command)

    def flushed(self, is_done: bool) -> None:
        """All pools were reset, unless a request runs: the check and the op-log begin anew."""
        if is_done:
            self._recorder.restart()
            self._events.clear()
            self._checker.start_over()

    def _audited(self, tables: Mapping[str, OwnerTable]) -> Compare:
        self._watch()
        self._records = AuditedRecords(self._memory, tables)
        return self._records.compare

    def _capture(self, step: int, before: Snapshot | None) -> Snapshot:
        self._watch()
        if before is None or self._state is None:
            self._state = LiveFacts(self._release, self._memory, self._requests)
        return replace(self._state.capture(), step=step)

    def _watch(self) -> None:
        if not self._is_watched:
            self._is_watched = True
            self._memory.watch(self._notice, self._wrap)

    def _take_events(self) -> Iterable[NamedTuple]:
        events = super()._take_events()
        return events if self._records is None else self._records.named(events)

    def _abandon_lost(self) -> None:
        """Forget requests without a row that no queue has: they were aborted there.  One that keeps a row is lost."""
        in_scheduler = reachable(self._built.scheduler)
        lost = [request for request in self._requests.live.values() if id(request.req) not in in_scheduler]
        for request in lost:
            if not request.req.finished() and held(request.req, "req_pool_idx") is None:
                self._requests.abandon(request.id)


def _pausing(mode: str) -> Op | str:
    return Pause() if mode == RETRACT else f"pauses with mode {mode}"


CALLS: Mapping[str, Follow] = {
    "process_input_requests": Follow(lambda check, _: check.iteration_ended(), lambda check, _: check.inputs_taken()),
    "_add_request_to_queue": Follow(lambda check, arguments: check.added(arguments[0])),
    "abort_request": Follow(lambda check, arguments: check.aborting(arguments[0])),
    "run_batch": Follow(lambda check, arguments: check.launching(arguments[0])),
    "process_batch_result": Follow(lambda check, _: check.completing()),
    "pause_generation": Follow(lambda check, arguments: check.commanded(_pausing(arguments[0].mode))),
    "continue_generation": Follow(lambda check, _: check.commanded(Resume())),
    "flush_cache": Follow(after=lambda check, is_done: check.flushed(is_done)),
}


def wrap(module: ModuleType, setting: Mapping[str, str]) -> None:
    """Wrap the event loops of the scheduler class, and the calls that are followed."""
    loops = {*KNOWN_LOOPS, *[name for name in dir(module.Scheduler) if name.startswith("event_loop_")]}
    calls = {**CALLS, **dict.fromkeys(sorted(loops), Follow(outermost=True, starts=True))}
    wrap_calls(module.Scheduler, calls, "sglang", setting, _attach)


def _attach(version: str, scheduler: Any, loop: str, wrap: Wrap) -> SglangAttachment:
    if loop not in KNOWN_LOOPS:
        raise UsageError(f"it runs {loop}; {' and '.join(KNOWN_LOOPS)} are known")
    return SglangAttachment(SglangRelease(version), scheduler, wrap)
