"""A release of SGLang behind EnginePort: its own scheduler, policies, allocators and trees; only the model is not."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import swarden.invariants.events as seen
from swarden.harness.core.event_log import EventLog
from swarden.harness.core.faults import FaultPlan
from swarden.harness.core.ops import ResetCause
from swarden.harness.core.origins import EngineCode
from swarden.harness.core.port import EnginePort, Streamed, Submission
from swarden.harness.engines.sglang.boot import SglangRelease
from swarden.harness.engines.sglang.capture import SglangCapture
from swarden.harness.engines.sglang.config import SglangConfig
from swarden.harness.engines.sglang.forks import SglangForks
from swarden.harness.engines.sglang.forward import TagForward
from swarden.harness.engines.sglang.moves import NodeLocks, with_owners
from swarden.harness.engines.sglang.options import max_request_len
from swarden.harness.engines.sglang.part import Core, SglangPart
from swarden.harness.engines.sglang.parts.resets import SglangResets
from swarden.harness.engines.sglang.pools import EVERYTHING
from swarden.harness.engines.sglang.requests import SPARE_TOKENS, SglangRequests, cause_of, is_rejected, rid_of
from swarden.harness.engines.sglang.scheduler import Passes, build, turn
from swarden.harness.kit import drafts, tags
from swarden.harness.kit.reported import OF_CLIENTS, OF_OWNERS, OF_PASSES, names_of
from swarden.harness.kit.stand_ins import Missing
from swarden.invariants import reference, view
from swarden.invariants.reuse import sharing

DECISIONS = (  # the modules and methods with these names in any release
    "sglang.srt.managers.schedule_policy.PrefillAdder",
    "sglang.srt.mem_cache.prefill_budget",
    "sglang.srt.managers.scheduler.Scheduler.get_new_batch_prefill",
    "sglang.srt.managers.scheduler.Scheduler._get_new_batch_prefill_raw",
    "sglang.srt.disaggregation.decode.DecodePreallocQueue.pop_preallocated",
)
CODE = EngineCode(
    "sglang",
    ledgers="sglang.srt.mem_cache.alloc",
    stand_ins=[f"{__package__}.forward", f"{__package__}.parts.drafts", drafts.__name__, tags.__name__],
    emitters=("lock", "unlock", "inc_lock_ref", "dec_lock_ref"),
    decisions=DECISIONS,
)
OF_SCHEDULER = (seen.Retracted, seen.Paused, seen.Resumed, seen.CacheReset)
OF_SESSIONS = (seen.Lent, seen.Kept, seen.GivenUp, seen.TurnRefused)
UNREPORTED = seen.ALL_EVENTS - names_of([*OF_PASSES, *OF_OWNERS, *OF_CLIENTS, *OF_SCHEDULER, *OF_SESSIONS])


class SglangEngine(EnginePort):
    """One scheduler; a step is one iteration of its event loop.

    `decode` computes a batch of decodes; `submit_turn` sends a turn of a session, if there are sessions.
    """

    has_uncached = True
    forks = True
    submit_turn: Callable[[Submission], int]

    def __init__(self, release: SglangRelease, config: SglangConfig) -> None:
        self.log = EventLog(code=CODE)
        self.faults = FaultPlan(config.faults, on_fire=lambda fault: self.log.notice(seen.Fired(fault)))
        release.code("Req").__hash__ = lambda req: int(req.rid)  # no address: a set of preempted ones is put back
        max_len = max_request_len(release, config)
        self._requests = SglangRequests(release, self._notice, max_len=max_len, have_priorities=config.has_priorities)
        self._forks = SglangForks(self._requests)
        self._forward = TagForward(release, config.shape, [one.pool for one in config.components], self._notice)
        self.decode = self._forward.launch
        self.built = build(
            release,
            config,
            passes=Passes(self._launch, self._complete),
            on_message=self._requests.on_message,
            notice=self._notice,
        )
        scheduler, memory = self.built[:2]
        scheduler.max_req_len = max_len
        scheduler.max_req_input_len = max_len - SPARE_TOKENS
        core = Core(release, scheduler, memory, self._requests, self._forward, self.faults, self._notice)
        self.resets = SglangResets(core)
        self.parts = self._parts(config, core)
        for part in self.parts:
            part.attach(self)
        unreported = UNREPORTED.difference(*[part.reported for part in self.parts])
        unreported = unreported.union(*[part.unreported for part in self.parts])
        self._capture = SglangCapture(release, config, self.built, unreported, self.parts)
        self.log.when_traced = lambda: self._capture.watch_locks(lambda *moved: self._notice(NodeLocks(*moved)))
        self._steps = 0
        self._before = self._after = self.found()

    def reference(self) -> reference.Reference:
        return reference.Reference(tags.VOCABULARY, tuple([component.window for component in self._before.components]))

    @property
    def has_work(self) -> bool:
        return bool(self._requests or self._forward.passes.in_flight) or any(part.has_work for part in self.parts)

    def submit(self, submission: Submission) -> int:
        if submission.session:
            return self.submit_turn(submission)
        several = submission.sequences > 1
        number, req = (self._forks.submit if several else self._requests.new)(submission)
        if req is None:
            return number
        self._admit(req)
        if is_rejected(req) and not several:
            number = self._requests.refused(req.swarden)
            self._requests.reject(number, submission, cause_of(req))
        return number

    def _admit(self, req: Any) -> None:
        self.built.scheduler.init_req_max_new_tokens(req)
        self.built.scheduler._add_request_to_queue(req)

    def abort(self, request_id: int) -> None:
        sent = request_id if request_id in self._requests else self._forks.abort(request_id)
        if sent is not None:
            self.built.scheduler.abort_request(Missing(rid=rid_of(sent), abort_all=False))

    def step(self) -> Sequence[Streamed]:
        self._steps += 1
        for part in self.parts:
            part.begin_step()
        turn(self.built.scheduler)
        for part in self.parts:
            part.stepped()
        for number, submission in self._forks.due():
            self._admit(self._requests.sent(number, submission))
        return self._requests.streamed()

    def flush(self) -> bool:
        """Evict all cached pages that are not locked. The release's own flush resets the pools, which hides leaks."""
        everything = self._forward.release.code("EvictParams")(num_tokens=EVERYTHING, swa_num_tokens=EVERYTHING)
        self.built.memory.tree.evict(everything)
        return True

    def clear(self) -> None:
        for part in self.parts:
            part.clear()
        self.flush()
        for part in self.parts:
            part.cleared()

    def pause(self) -> bool:
        return self.resets.pause("retract")

    def pause_in_place(self) -> bool:
        return self.resets.pause("in_place")

    def abort_all(self) -> bool:
        """As pause_generation with mode "abort": the tokenizer process lets all be aborted, and keeps requests back."""
        self._forks.abort_all()
        self.built.scheduler.abort_request(Missing(rid="", abort_all=True))
        return True

    def resume(self) -> None:
        self.resets.resume()

    def reset(self, cause: ResetCause) -> bool:
        return self.resets.reset(cause)

    def capture(self) -> view.Snapshot:
        self._after = sharing(self._after, self.found())
        return self._after

    def found(self) -> view.Snapshot:
        """The snapshot, with no part in common with the last one."""
        return self._capture.capture(self._steps, self._requests.unfinished, self._forward.passes.in_flight)

    def take_events(self) -> list[NamedTuple]:
        """The events, with the owners of moved units inferred from the last snapshots before and after them."""
        self._requests.report_changes()
        before, self._before = self._before, self._after
        events = with_owners(self.log.take(), before, self._before)
        if self.log.origins:
            self.log.origins = [self.log.origins[index] for index, _ in events]
        return [event for _, event in events]

    def _parts(self, config: SglangConfig, core: Core) -> list[SglangPart]:
        return [part for one in config.capabilities for part in one.parts(core)] + [self.resets]

    def _launch(self, batch: Any) -> Any:
        self._requests.report_changes()
        for part in self.parts:
            part.launching(batch)
        compute = self.decode if batch.forward_mode.is_decode() else self._forward.launch
        result = compute(batch, self.built.memory)
        for part in self.parts:
            part.launched(batch, result)
        return result

    def _complete(self, result: Any) -> None:
        if result.swarden_pass is None:  # it has been verified in its launch
            return
        self._requests.report_changes()
        self._forward.complete(result, self._requests.unfinished)
        for part in self.parts:
            part.completed(result)

    def _notice(self, event: NamedTuple) -> None:
        self.log.notice(event)
