"""A release of SGLang behind EnginePort: its own scheduler, policies, allocators and trees; only the model is not."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import swarden.invariants.events as seen
from swarden.harness.core.event_log import EventLog
from swarden.harness.core.faults import CLIENT_FAULTS, FaultPlan
from swarden.harness.core.ops import ResetCause
from swarden.harness.core.origins import EngineCode
from swarden.harness.core.port import DraftPort, EnginePort, Streamed, Submission
from swarden.harness.engines.sglang.boot import SglangRelease
from swarden.harness.engines.sglang.capture import Enabled, SglangCapture
from swarden.harness.engines.sglang.config import (
    BOTH,
    DECODE,
    HOST_FAULTS,
    LINK_FAULTS,
    NO_BUFFER,
    STORAGE_FAULTS,
    SglangConfig,
)
from swarden.harness.engines.sglang.forks import SglangForks
from swarden.harness.engines.sglang.forward import TagForward
from swarden.harness.engines.sglang.host_tier import EVERYTHING, SglangHostTier
from swarden.harness.engines.sglang.memory import sub_allocators
from swarden.harness.engines.sglang.moves import NodeLocks, with_owners
from swarden.harness.engines.sglang.requests import SPARE_TOKENS, SglangRequests, cause_of, is_rejected, rid_of
from swarden.harness.engines.sglang.resets import SglangResets
from swarden.harness.engines.sglang.router import SglangRouter
from swarden.harness.engines.sglang.scheduler import Passes, build, turn
from swarden.harness.engines.sglang.sessions import SglangSessions
from swarden.harness.engines.sglang.speculation import SglangSpeculation
from swarden.harness.engines.sglang.states import states_of
from swarden.harness.kit import drafts, tags
from swarden.harness.kit.reported import OF_CLIENTS, OF_OWNERS, OF_PASSES, OF_ROUTERS, names_of
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
    stand_ins=[f"{__package__}.forward", f"{__package__}.speculation", drafts.__name__, tags.__name__],
    emitters=("lock", "unlock", "inc_lock_ref", "dec_lock_ref"),
    decisions=DECISIONS,
)
OF_SCHEDULER = (seen.Retracted, seen.Paused, seen.Resumed, seen.CacheReset, seen.CopiedIn)
OF_SESSIONS = (seen.Lent, seen.Kept, seen.GivenUp, seen.TurnRefused)
OF_TRANSFERS = (seen.TakenOver, seen.Filled)
REPORTED = names_of([*OF_PASSES, *OF_OWNERS, *OF_CLIENTS, *OF_SCHEDULER, *OF_SESSIONS, *OF_TRANSFERS])
UNREPORTED = seen.ALL_EVENTS - REPORTED
FAULTS = {**CLIENT_FAULTS, **HOST_FAULTS, **STORAGE_FAULTS, **LINK_FAULTS}


class OptionalParts(NamedTuple):
    """The parts of an engine that its configuration may disable."""

    host: SglangHostTier | None
    sessions: SglangSessions | None
    drafts: SglangSpeculation | None
    router: SglangRouter | None
    resets: SglangResets | None  # not of a side of a pair


class SglangEngine(EnginePort):
    """One scheduler; a step is one iteration of its event loop."""

    has_uncached = True

    def __init__(self, release: SglangRelease, config: SglangConfig) -> None:
        self.log = EventLog(code=CODE)
        self.forks = config.role == BOTH
        self.faults = FaultPlan(faults_of(config), on_fire=lambda fault: self.log.notice(seen.Fired(fault)))
        release.code("Req").__hash__ = lambda req: int(req.rid)  # no address: a set of preempted ones is put back
        self._requests = SglangRequests(release, config, self._notice)
        self._forks = SglangForks(self._requests)
        self._forward = TagForward(release, config, self._notice)
        self.built = build(
            release,
            config,
            passes=Passes(self._launch, self._complete),
            on_message=self._requests.on_message,
            notice=self._notice,
        )
        scheduler = self.built.scheduler
        scheduler.max_req_len = self._requests.max_len
        scheduler.max_req_input_len = self._requests.max_len - SPARE_TOKENS
        self._parts = OptionalParts(
            SglangHostTier(release, config, self.built, self._forward, self.faults)
            if config.host_ratio is not None or config.decode_offload
            else None,
            SglangSessions(release, config, self.built, self._requests, self._notice)
            if config.streaming_sessions
            else None,
            (
                SglangSpeculation(release, config, self.built, self._forward, self._notice)
                if config.draft_len is not None
                else None
            ),
            SglangRouter(release, self.built, self._notice) if config.kv_events else None,
            SglangResets(release, self.built, self._lose_kv, self._notice) if config.role == BOTH else None,
        )
        self.drafts: DraftPort | None = None if self._parts.drafts is None else self._parts.drafts.script
        self.sessions = self._parts.sessions
        self._capture = SglangCapture(
            release,
            config,
            self.built,
            unreported_by(release, config),
            Enabled(self._parts.host, None if self.sessions is None else self.sessions.open),
        )
        self.log.when_traced = lambda: self._capture.watch_locks(lambda *moved: self._notice(NodeLocks(*moved)))
        self._steps = 0
        self._before = self._after = self._found()

    def reference(self) -> reference.Reference:
        return reference.Reference(tags.VOCABULARY, tuple([component.window for component in self._before.components]))

    @property
    def has_work(self) -> bool:
        return bool(
            self._requests or self._forward.passes.in_flight or (self._parts.host and self._parts.host.is_copying)
        )

    def submit(self, submission: Submission) -> int:
        if self._parts.sessions is not None and submission.session:
            return self._parts.sessions.submit(submission)
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
        if self._parts.sessions is not None:
            self._parts.sessions.pass_time()
        if self._parts.host is not None and self._parts.host.storage is not None:
            self._parts.host.storage.step()
        if self._parts.host is not None and (self.built.scheduler._engine_paused or not self._requests.unfinished):
            self._parts.host.end_copies()
        turn(self.built.scheduler)
        if self._parts.resets is not None:
            self._parts.resets.stepped(is_busy=bool(self._requests.unfinished))
        for number, submission in self._forks.due():
            self._admit(self._requests.sent(number, submission))
        return self._requests.streamed()

    def flush(self) -> bool:
        """Evict all cached pages that are not locked. The release's own flush resets the pools, which hides leaks."""
        everything = self._forward.release.code("EvictParams")(num_tokens=EVERYTHING, swa_num_tokens=EVERYTHING)
        self.built.memory.tree.evict(everything)
        return True

    def clear(self) -> None:
        if self._parts.sessions is not None:
            self._parts.sessions.close_due()
        self.flush()
        if self._parts.host is not None:
            self._parts.host.drop_copies()
            before = -1
            while self._parts.host.storage is not None and before < (free := self._num_free()):
                before = free  # copies to the storage kept pages on the host, and so others on the device
                self.flush()
                self._parts.host.drop_copies()

    def _num_free(self) -> int:
        return sum(int(pool.available_size()) for pool in sub_allocators(self.built.memory.allocator))

    def pause(self) -> bool:
        if self._parts.resets is not None:
            self._parts.resets.idle_steps = 0
        self.log.notice(seen.Paused())
        self.built.scheduler.pause_generation(Missing(mode="retract"))
        return True

    def pause_in_place(self) -> bool:
        if self._parts.resets is None:
            return False
        self._parts.resets.idle_steps = 0
        self.log.notice(seen.Paused(keeps=True))
        self.built.scheduler.pause_generation(Missing(mode="in_place"))
        return True

    def abort_all(self) -> bool:
        """As pause_generation with mode "abort": the tokenizer process lets all be aborted, and keeps requests back."""
        if self._parts.resets is None:
            return False
        self._forks.abort_all()
        self.built.scheduler.abort_request(Missing(rid="", abort_all=True))
        return True

    def resume(self) -> None:
        if self._parts.resets is not None:
            self._parts.resets.idle_steps = 0
            self._parts.resets.restore_memory()
        if self.built.scheduler._engine_paused:
            self.log.notice(seen.Resumed())
        self.built.scheduler.continue_generation(Missing(torch_empty_cache=False))

    def reset(self, cause: ResetCause) -> bool:
        if self._parts.resets is None:
            return False
        is_copying = self._parts.host is not None and self._parts.host.is_in_flight
        if self._stores:  # a copy to the host goes on to the storage
            self._parts.resets.idle_steps = 0
        return self._parts.resets.reset(cause, self._found(), is_copying=is_copying)

    @property
    def _stores(self) -> bool:
        """Whether the storage or a copy on its way there is at work."""
        host = self._parts.host
        return host is not None and host.storage is not None and host.is_copying

    def capture(self) -> view.Snapshot:
        self._after = sharing(self._after, self._found())
        return self._after

    def _found(self) -> view.Snapshot:
        found = self._capture.capture(self._steps, self._requests.unfinished, self._forward.passes.in_flight)
        router = self._parts.router
        return found if router is None else replace(found, cached_blocks=router.cached_blocks())

    def take_events(self) -> list[NamedTuple]:
        """The events, with the owners of moved units inferred from the last snapshots before and after them."""
        self._requests.report_changes()
        before, self._before = self._before, self._after
        events = with_owners(self.log.take(), before, self._before)
        if self.log.origins:
            self.log.origins = [self.log.origins[index] for index, _ in events]
        return [event for _, event in events]

    def _lose_kv(self) -> bool:
        """What a reset drops is never read again; whether a copy to or from the host is lost."""
        for memory in self._forward.tags:
            memory.clear()
        if (states := states_of(self.built.memory.rows)) is not None:
            states.clear()
        if self._parts.sessions is not None:
            self._parts.sessions.give_up_all()
        return self._parts.host is not None and self._parts.host.lose_copies()

    def _launch(self, batch: Any) -> Any:
        self._requests.report_changes()
        if self._parts.host is not None:
            self._parts.host.wait_for_loads(batch)
        if self._parts.sessions is not None and batch.forward_mode.is_extend():
            self._parts.sessions.report_lent(batch)
        if self._parts.drafts is not None and batch.forward_mode.is_decode():
            result = self._parts.drafts.launch(batch, self.built.memory)
        else:
            result = self._forward.launch(batch, self.built.memory)
            if self._parts.drafts is not None:
                self._parts.drafts.prefilled(batch, result)
        if self._parts.host is not None:
            self._parts.host.launched(batch)
        return result

    def _complete(self, result: Any) -> None:
        if result.swarden_pass is None:  # it has been verified in its launch
            return
        self._requests.report_changes()
        self._forward.complete(result, self._requests.unfinished)
        if self._parts.drafts is not None:
            self._parts.drafts.completed(result)

    def _notice(self, event: NamedTuple) -> None:
        self.log.notice(event)


def unreported_by(release: SglangRelease, config: SglangConfig) -> frozenset[str]:
    """The names of the events that this configuration never reports, and of the laws that do not apply to it.

    Only a decode side takes over requests.  Its rejections are not reported, because it rejects a prompt by the
    windowed pages that it allocates for it.  Its stand-in for the receiver decides when a transfer times out.  With
    overlapped drafts the stand-in for the worker, not the release, compares the drafts with the sampled tokens.
    """
    unreported = UNREPORTED - names_of(OF_ROUTERS) if config.kv_events else UNREPORTED
    if config.decode_offload:
        unreported -= names_of([seen.PrefixesCompared])
    if config.host_ratio is None and config.role != DECODE:
        unreported |= names_of([seen.CopiedIn])
    if config.state_slots is not None and (config.state_strategy != NO_BUFFER or config.draft_len is not None):
        unreported |= {"ended_requests_leave_their_kv_cached"}  # it is cached up to the last state that was kept of it
    if release.has("overlapped_drafts"):
        unreported |= {"accepted_drafts_match_the_model"}
    if config.role != BOTH:
        unreported |= names_of([seen.CacheReset])
    return unreported | names_of([seen.Rejected] if config.role == DECODE else OF_TRANSFERS)


def faults_of(config: SglangConfig) -> Mapping[str, str]:
    """The faults that can happen to a scheduler of this configuration, each with its effect."""
    of_host = HOST_FAULTS if config.host_ratio is not None or config.decode_offload else {}
    of_storage = STORAGE_FAULTS if config.has_storage else {}
    of_link = LINK_FAULTS if config.role != BOTH else {}
    return {**CLIENT_FAULTS, **of_host, **of_storage, **of_link}
