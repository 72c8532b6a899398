"""A release of SGLang behind EnginePort: its own scheduler, policies, allocators and trees; only the model is not."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import swarden.invariants.events as seen
from swarden.harness.core.ops import ResetCause
from swarden.harness.core.origins import EngineCode
from swarden.harness.core.port import Streamed, Submission
from swarden.harness.engines.sglang.boot import SglangRelease
from swarden.harness.engines.sglang.capability import SglangPart
from swarden.harness.engines.sglang.capture import SglangFacts
from swarden.harness.engines.sglang.config import SglangConfig
from swarden.harness.engines.sglang.forks import SglangForks
from swarden.harness.engines.sglang.forward import TagForward
from swarden.harness.engines.sglang.moves import NodeLocks, with_owners
from swarden.harness.engines.sglang.options import max_request_len
from swarden.harness.engines.sglang.parts.resets import SglangResets
from swarden.harness.engines.sglang.pools import EVERYTHING
from swarden.harness.engines.sglang.requests import SPARE_TOKENS, SglangRequests, cause_of, is_rejected, rid_of
from swarden.harness.engines.sglang.scheduler import Passes, build, turn
from swarden.harness.kit import drafts, tags
from swarden.harness.kit.reported import OF_CLIENTS, OF_OWNERS, OF_PASSES, names_of
from swarden.harness.kit.stand_ins import Missing

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
REPORTED = names_of([*OF_PASSES, *OF_OWNERS, *OF_CLIENTS, *OF_SCHEDULER, *OF_SESSIONS])


class SglangEngine(SglangFacts):
    """One scheduler; a step is one iteration of its event loop.

    `decode` computes a batch of decodes; `submit_turn` sends a turn of a session, if there are sessions.
    """

    code = CODE
    reported = REPORTED
    has_uncached = True
    forks = True
    submit_turn: Callable[[Submission], int]

    def __init__(self, release: SglangRelease, config: SglangConfig) -> None:
        super().__init__(config.faults)
        self.release, self.config = release, config
        # no address: a set of preempted ones is put back
        release.code("Req").__hash__ = lambda req: int(req.rid.rpartition("-")[2])
        max_len = max_request_len(release, config)
        self.requests = SglangRequests(release, self.log.notice, max_len=max_len, have_priorities=config.has_priorities)
        self._forks = SglangForks(self.requests)
        self.forward = TagForward(release, config.shape, config.components, self.log.notice)
        self.decode = self.forward.launch
        self.passes = self.forward.passes
        self.built = build(
            release,
            config,
            passes=Passes(self._launch, self._complete),
            on_message=self.requests.on_message,
            notice=self.log.notice,
        )
        self.scheduler, self.memory = self.built[:2]
        self.scheduler.max_req_len = max_len
        self.scheduler.max_req_input_len = max_len - SPARE_TOKENS
        self.provide(config.capabilities, config, release)
        self.resets = SglangResets(self)
        self.parts = (*self.parts, self.resets, *self.of_model())
        self.walk(release, config, self.built)
        self.log.when_traced = lambda: self.watch_locks(lambda *moved: self.log.notice(NodeLocks(*moved)))
        self._before = self.capture()

    def submit(self, submission: Submission) -> int:
        if submission.session:
            return self.submit_turn(submission)
        several = submission.sequences > 1
        number, req = (self._forks.submit if several else self.requests.new)(submission)
        if req is None:
            return number
        self._admit(req)
        if is_rejected(req) and not several:
            number = self.requests.refused(req.swarden)
            self.requests.reject(number, submission, cause_of(req))
        return number

    def _admit(self, req: Any) -> None:
        self.scheduler.init_req_max_new_tokens(req)
        if not self.scheduler.grammar_manager.process_req_with_grammar(req):
            self.scheduler._add_request_to_queue(req)

    def abort(self, request_id: int) -> None:
        sent = request_id if request_id in self.requests else self._forks.abort(request_id)
        if sent is not None:
            self.scheduler.abort_request(Missing(rid=rid_of(sent), abort_all=False))

    def step(self) -> Sequence[Streamed]:
        self.begin_step()
        turn(self.scheduler)
        for part in self.parts:
            part.stepped()
        for number, submission in self._forks.due():
            self._admit(self.requests.sent(number, submission))
        return self.requests.streamed()

    def flush(self) -> bool:
        """Evict all cached pages that are not locked. The release's own flush resets the pools, which hides leaks."""
        everything = self.release.code("EvictParams")(num_tokens=EVERYTHING, swa_num_tokens=EVERYTHING)
        self.memory.tree.evict(everything)
        return True

    def clear(self) -> None:
        super().clear()
        for part in self.parts:
            part.cleared()

    def pause(self) -> bool:
        return self.resets.pause("retract")

    def pause_in_place(self) -> bool:
        return self.resets.pause("in_place")

    def abort_all(self) -> bool:
        """As pause_generation with mode "abort": the tokenizer process lets all be aborted, and keeps requests back."""
        self._forks.abort_all()
        self.scheduler.abort_request(Missing(rid="", abort_all=True))
        return True

    def resume(self) -> None:
        self.resets.resume()

    def reset(self, cause: ResetCause) -> bool:
        return self.resets.reset(cause)

    def take_events(self) -> list[NamedTuple]:
        """The events, with the owners of moved units inferred from the last snapshots before and after them."""
        self.requests.report_changes()
        before, self._before = self._before, self._last or self._before
        events = with_owners(self.log.take(), before, self._before)
        if self.log.origins:
            self.log.origins = [self.log.origins[index] for index, _ in events]
        return [event for _, event in events]

    def of_model(self) -> Sequence[SglangPart]:
        """What a model does beside the stand-in."""
        return ()

    def _launch(self, batch: Any) -> Any:
        self.requests.report_changes()
        for part in self.parts:
            part.launching(batch)
        if batch.forward_mode.is_idle():
            return Missing(swarden_pass=None, copy_done=None)
        compute = self.decode if batch.forward_mode.is_decode() else self.forward.launch
        result = compute(batch, self.memory)
        for part in self.parts:
            part.launched(batch, result)
        return result

    def _complete(self, result: Any) -> None:
        if result.swarden_pass is None:  # it has been verified in its launch
            return
        self.requests.report_changes()
        self.complete(result.swarden_pass)
        for part in self.parts:
            part.completed(result)
