"""The strict check of one scheduler that a server has built."""

from typing import Any

from swarden.harness.core.ops import Pause, Resume
from swarden.harness.engines.foreign.attached import attachment
from swarden.harness.engines.foreign.attached.follow import AttachSetting
from swarden.harness.engines.foreign.attached.levels import AUDIT, CENSUS, SUMS, AttachedLevel
from swarden.harness.engines.sglang.attached.audit import Audit
from swarden.harness.engines.sglang.attached.census import Census
from swarden.harness.engines.sglang.attached.live import (
    built_of,
    config_of,
    differences,
    reachable,
    use_watched_methods,
)
from swarden.harness.engines.sglang.attached.recorder import record_submission, record_turn
from swarden.harness.engines.sglang.attached.sums import Sums
from swarden.harness.engines.sglang.boot import SglangRelease
from swarden.harness.engines.sglang.moves import watch
from swarden.harness.engines.sglang.requests import SglangRequest, SglangRequests, held

RETRACT = "retract"


class SglangAttachment(attachment.Attachment):
    """Follows the event loop of a scheduler; a turn ends when the next one begins to take its inputs.

    Between two turns all records, locks and queues are consistent, in the normal and in the overlapped loop; a pass
    whose result is not processed yet is in flight.
    """

    def __init__(self, release: SglangRelease, scheduler: Any, setting: AttachSetting) -> None:
        """Raises UnknownScheduler if the scheduler has parts that the check does not know."""
        self._setting, self._release = setting, release
        self._built = built_of(release, scheduler)
        self._config = config_of(release, self._built)
        super().__init__("sglang", release, self._config, lost=differences(self._built), setting=setting)
        self._requests = SglangRequests(release, self._config, self._notice)
        self._check = self._new_check()
        self._has_inputs = self._is_busy = False
        if setting.level != SUMS:
            allocator = self._built.memory.allocator
            watch("full", allocator.full_attn_allocator, self._notice)
            watch("swa", allocator.swa_attn_allocator, self._notice)
            use_watched_methods(self._built.memory.tree, allocator)

    def turn_ended(self) -> None:
        """Check the turn before, unless there was nothing to do in it."""
        is_busy = bool(self._requests) and not self._built.scheduler._engine_paused
        if not (is_busy or self._is_busy):
            return
        self._is_busy = is_busy
        self._abandon_lost()
        ended = self._requests.forget_ended()
        record_turn(self._recorder, ended, overlap=self._config.overlap)
        self._report(self._check.turn_ended(self._take_events()))

    def inputs_taken(self) -> None:
        """Requests and commands of this turn have been taken in."""
        if self._has_inputs:
            self._has_inputs, self._is_busy = False, True
            self._abandon_lost()
            self._report(self._check.inputs_taken(self._take_events()))

    def added(self, req: Any) -> None:
        """A request enters the queue; a retracted one returns to it."""
        if not hasattr(req, "swarden"):
            self._has_inputs = True
            request = SglangRequest(self._requests.next_id(), req, self._built.namespace_of(req.extra_key))
            if isinstance(self._check, Census):
                self._check.added(request)
            record_submission(self._recorder, self._requests.add(request))
            if getattr(req, "session", None) is not None:
                self._recorder.lose("turns of sessions, which are recorded as requests of their own")

    def aborting(self, message: Any) -> None:
        """Requests are about to be aborted by the beginning of their id, or all."""
        self._has_inputs = True
        for request in self._requests.unfinished.values():
            if message.abort_all or request.req.rid.startswith(message.rid):
                self._recorder.aborted(request.id)

    def launching(self, batch: Any) -> None:
        """A pass is about to be launched."""
        self._requests.report_changes()
        self._events += self._check.launched(batch)

    def completing(self) -> None:
        """The result of a pass is about to be processed."""
        self._requests.report_changes()
        self._events += self._check.completed()

    def paused(self, mode: str) -> None:
        self._has_inputs = True
        if mode == RETRACT:
            self._recorder.called(Pause())
        else:
            self._recorder.lose(f"pauses with mode {mode}")

    def resumed(self) -> None:
        self._has_inputs = True
        self._recorder.called(Resume())

    def flushed(self, is_done: bool) -> None:
        """All pools were reset, unless a request runs: the check and the op-log begin anew."""
        if is_done:
            self._recorder.restart()
            self._events.clear()
            self._check = self._new_check()

    def _new_check(self) -> AttachedLevel:
        parts = self._release, self._config, self._built
        if self._setting.level == CENSUS:
            return Census(*parts, self._requests)
        return Audit(*parts) if self._setting.level == AUDIT else Sums(*parts)

    def _abandon_lost(self) -> None:
        """Requests that left the queue without an end have been aborted there; one that keeps a row is lost."""
        found = reachable(self._built.scheduler)
        for request in self._requests.unfinished.values():
            if id(request.req) not in found and held(request.req, "req_pool_idx") is None:
                self._requests.abandon(request.id)
