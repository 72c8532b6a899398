"""A release of vLLM behind EnginePort: its own engine core, scheduler and cache manager; only the model is not."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from enum import Enum
from functools import partial
from typing import Any

import msgspec

import swarden.invariants.events as seen
from swarden.harness.core.event_log import EventLog
from swarden.harness.core.faults import CLIENT_FAULTS, FaultPlan
from swarden.harness.core.origins import EngineCode
from swarden.harness.core.port import DraftPort, EnginePort, SessionPort, Streamed, Submission
from swarden.harness.engines.vllm.block_copies import CPU, held_blocks
from swarden.harness.engines.vllm.boot import VllmRelease
from swarden.harness.engines.vllm.capture import EventSources, VllmCapture
from swarden.harness.engines.vllm.config import BOTH, CHUNKS, CONNECTOR_FAULTS, LOAD_FAILS, VllmConfig
from swarden.harness.engines.vllm.core import build
from swarden.harness.engines.vllm.device import POOL
from swarden.harness.engines.vllm.moves import Moves
from swarden.harness.engines.vllm.offloading import OffloadingSide
from swarden.harness.engines.vllm.passes import VllmPass
from swarden.harness.engines.vllm.reports import completed, launched
from swarden.harness.engines.vllm.requests import VllmRequest, VllmRequests
from swarden.harness.engines.vllm.router import VllmRouter
from swarden.harness.engines.vllm.runner import Hooks, Runner
from swarden.harness.engines.vllm.sessions import VllmSessions
from swarden.harness.kit import drafts, tags
from swarden.harness.kit.calls import intercept
from swarden.harness.kit.reported import OF_CLIENTS, OF_OWNERS, OF_PASSES, OF_ROUTERS, names_of
from swarden.invariants import reference, view
from swarden.invariants.events import FinishReason
from swarden.invariants.reuse import sharing

WORKER = [f"{__package__}.{name}" for name in ("runner", "device", "passes", "states")]
DECISIONS = (
    "vllm.v1.core.sched.scheduler.Scheduler.schedule",
    "vllm.v1.core.sched.scheduler.Scheduler._handle_blocked_waiting_request",
    "vllm.v1.core.sched.scheduler.Scheduler._update_waiting_for_remote_kv",
    "vllm.v1.core.kv_cache_manager.KVCacheManager.allocate_slots",
)
CODE = EngineCode(
    "vllm",
    ledgers="vllm.v1.core.block_pool",
    stand_ins=[*WORKER, drafts.__name__, tags.__name__],
    decisions=DECISIONS,
)
OF_SESSIONS = (seen.Lent, seen.Kept, seen.GivenUp)
OF_CORE = (seen.Admitted, seen.Retracted, seen.Loaded, seen.Paused, seen.Resumed)
REPORTED = names_of([*OF_PASSES, *OF_OWNERS, *OF_CLIENTS, *OF_CORE])
# A prefill side never reserves pages or takes a request over, so these are reported, too.
HANDOVERS = names_of([seen.HandedOver, seen.LetGo, seen.Reserved, seen.Sent, seen.TakenOver])
# Laws that could not fail: the stand-in samples and accepts drafts, and says whose results count; the lengths of a
# record are counted in whole blocks, and from the passes in flight; an aborted request is not shown any more; the
# adapter keeps the sessions and their turns.
ONE_SIDED = (
    "aborted_requests_stop_decoding",
    "accepted_drafts_match_the_model",
    "discarded_results_are_stale",
    "launched_tokens_are_in_flight",
    "cursors_are_page_aligned",
    *("session_has_one_turn", "kept_records_match_their_sessions", "session_outlives_its_turn"),
)
FAULTS: Mapping[str, str] = {**CLIENT_FAULTS, **CONNECTOR_FAULTS}
MOST_STEPS_FOR_STORES = 16  # until the copies have ended that the close of a session begins


class PauseProgress(Enum):
    """A pause begins while passes are in flight, and is complete when all have completed."""

    NONE = 0
    BEGUN = 1
    COMPLETE = 2


class VllmEngine(EnginePort):
    """One engine core; a step is one of its steps, with or without its queue of batches."""

    def __init__(self, release: VllmRelease, config: VllmConfig) -> None:
        self.log = EventLog(code=CODE)
        self.faults = FaultPlan(faults_of(release, config), on_fire=lambda fault: self.log.notice(seen.Fired(fault)))
        self._config = config
        self.forks = config.role == BOTH
        self._requests = VllmRequests(release, config, self.log.notice)
        hooks = Hooks(self.log.notice, self._launched, self._completed, self._requests.number_of)
        self._runner = self._make_runner(release, hooks)
        self.built = build(release, config, self._runner)
        self._moves = self._made_moves()
        self.log.when_traced = self._moves.watch_locks
        context, notice = config.max_context_len, self.log.notice
        self._streams = VllmSessions(self.built, self._requests, context, notice) if config.streaming_input else None
        self.sessions: SessionPort | None = self._streams
        self.queues_turns = self._streams is not None
        self.drafts: DraftPort | None = self._runner.device.script if config.draft_len is not None else None
        self.pool_names = (POOL,)
        self._pause = PauseProgress.NONE
        scheduler = self.built.scheduler
        intercept(scheduler, "_preempt_request", self._preempted)
        intercept(scheduler, "_update_waiting_for_remote_kv", self._loaded)
        reported = self._reported | HANDOVERS if config.sends else self._reported
        reported |= names_of(OF_SESSIONS) if config.streaming_input else frozenset()
        reported |= names_of(OF_ROUTERS) if config.kv_events else frozenset()
        if config.cpu_chunks or config.external_len or config.receives:
            reported |= names_of([seen.CopiedIn])
        reported |= names_of([seen.PrefixesCompared]) if config.saves else frozenset()
        if not config.asynchronous and (LOAD_FAILS not in self.faults.known or config.late_loads):
            reported -= {seen.Discarded.__name__}  # no request ends while a pass is in flight
        router = VllmRouter(release, self.built, self.log.notice) if config.kv_events else None
        events = EventSources((seen.ALL_EVENTS - reported).union(ONE_SIDED), router)
        self._capture = VllmCapture(config, self.built, self._runner, self._moves, events)
        self._steps = 0
        self._after = self._found()

    def reference(self) -> reference.Reference:
        return reference.Reference(tags.VOCABULARY, self._runner.device.windows)

    def _made_moves(self) -> Moves:
        """The moves of blocks, also in the pool of CPU memory that copies of single blocks have."""
        notice, owner = self.log.notice, self._requests.owner
        if self._config.offloader == CHUNKS:
            return Moves(self.built, notice, owner)
        connector = self.built.scheduler.connector
        host = msgspec.structs.replace(self.built, manager=None, pool=connector.scheduler_manager.cpu_block_pool)
        beside = Moves(host, notice, owner, partial(held_blocks, connector, CPU))
        return Moves(self.built, notice, owner, partial(held_blocks, connector), beside=beside)

    @property
    def _reported(self) -> frozenset[str]:
        return REPORTED

    def _make_runner(self, release: VllmRelease, hooks: Hooks) -> Runner:
        return Runner(release, self._config, self.faults, hooks)

    @property
    def has_work(self) -> bool:
        return bool(self._requests or self._runner.in_flight or self.built.scheduler.has_requests())

    def submit(self, submission: Submission) -> int:
        reqs: Sequence[Any] = ()
        if submission.session and self._streams is not None:
            number = self._streams.submit(submission)
        else:
            number, reqs = self._requests.new(submission, self.built.hasher)
        for sequence in range(submission.sequences):
            self._runner.device.namespaces[number + sequence] = submission.namespace
        for req in reqs:
            self._admit(req)
        return number

    def abort(self, request_id: int) -> None:
        if self._streams is not None and (turn := self._turn(request_id)) is not None:
            self._streams.abort(turn)
        elif request_id in self._requests and (parent := self._requests.live[request_id].parent):
            self.built.core.abort_requests(self._requests.abort(parent))
            self._requests.collect()
        elif request_id in self._requests:
            self.built.core.abort_requests([self._requests.id_of(request_id)])
            self._requests.end(request_id, FinishReason.ABORT)

    def step(self) -> Sequence[Streamed]:
        self._steps += 1
        core = self.built.core
        if core.batch_queue or self.built.scheduler.has_requests():  # in a pause, too: as EngineCoreProc.has_work
            outputs, has_computed = core.step() if core.batch_queue is None else core.step_with_batch_queue()
            core.post_step(has_computed)
            for of_client in (outputs or {}).values():
                for output in of_client.outputs:
                    self._take(self.built.number_of(output.request_id), output)
                if aborted := self._requests.process(of_client.outputs):
                    core.abort_requests(aborted)
        self._finish_pause()
        return self._requests.streamed()

    def flush(self) -> bool:
        """reset_prefix_cache, which does nothing while a request has blocks, unless it preempts all of them."""
        if self._config.resets_running and self._is_loading:
            return False
        resets_connector = self._can_reset_connector and self._config.resets_running
        return self._reset(resets_running=self._config.resets_running, resets_connector=resets_connector)

    def clear(self) -> None:
        if self._config.offloader != CHUNKS and isinstance(loads := self._runner.loads, OffloadingSide):
            # An idle engine core learns with its next request that a load has ended, and in older releases, a store.
            connector = self.built.scheduler.connector
            for _ in range(MOST_STEPS_FOR_STORES):  # a session that has just been closed begins a store
                if self.built.core.batch_queue or self.built.scheduler.has_requests():  # an empty pass reports its end
                    self.step()
            is_storing = any(held.owner.kind == seen.BACKUP_KIND for held in held_blocks(connector))
            if not (is_storing and self._runner.release.has("steps_for_stores")):
                connector.update_connector_output(loads.end_copies())
        self._reset(resets_running=False)

    def pressure(self, pool: str, pages: int) -> bool:
        """Not while a pause waits for passes: it ends with a reset, for which the release wants all blocks back."""
        return self._pause != PauseProgress.BEGUN and self._moves.hold(pages)

    def pause(self) -> bool:
        """As pause_generation with mode "keep", or sleep: passes in flight complete, then the running requests are
        preempted, and the caches are reset.

        Not during a load, where a release says that its reset is not supported.
        """
        if self._is_loading:
            return False
        self.built.scheduler.set_pause_state(self._runner.release.code("PauseState").PAUSED_ALL)
        self._pause = PauseProgress.BEGUN
        self._finish_pause()
        return True

    def resume(self) -> None:
        if self._pause == PauseProgress.COMPLETE:
            self.log.notice(seen.Resumed())
        self._pause = PauseProgress.NONE
        self.built.core.resume_scheduler()

    def capture(self) -> view.Snapshot:
        self._moves.settle()
        self._after = sharing(self._after, self._found())
        return self._after

    def _admit(self, req: Any) -> None:
        self.built.core.add_request(req)

    def _take(self, number: int, output: Any) -> None:
        turn = self._turn(number)
        self._requests.take(number, output)
        if self._streams is not None and turn is not None and number not in self._requests:
            self._streams.ended(turn)

    def _turn(self, number: int) -> VllmRequest | None:
        request = self._requests.live.get(number)
        return request if request is not None and request.session else None

    def _found(self) -> view.Snapshot:
        snapshot = self._capture.capture(self._steps, self._requests, is_paused=self._is_paused)
        return snapshot if self._streams is None else replace(snapshot, sessions=tuple(self._streams.views()))

    @property
    def _is_paused(self) -> bool:
        """Whether the release is paused; for a client, a pause that waits for passes has not begun yet."""
        unpaused = self._runner.release.code("PauseState").UNPAUSED
        return self._pause != PauseProgress.BEGUN and bool(self.built.scheduler.pause_state != unpaused)

    @property
    def _is_loading(self) -> bool:
        """Whether a request that does not run, a copy or the harness has blocks: no release resets its cache then."""
        if self._moves.outside or self._moves.copies:
            return True
        running = {req.request_id for req in self.built.scheduler.running}
        return any(
            blocks and rid not in running for table in self.built.tables for rid, blocks in table.req_to_blocks.items()
        )

    @property
    def _can_reset_connector(self) -> bool:
        can_reset = self._config.offloader == CHUNKS or self._runner.release.has("simple_reset")
        return bool(self._config.cpu_chunks) and can_reset

    @property
    def _is_saving(self) -> bool:
        """Whether a request that has ended keeps blocks for a save, which begins with the next step."""
        return self._config.saves and any(
            blocks and self._requests.owner(self.built.number_of(rid)).kind == seen.HANDOVER_KIND
            for table in self.built.tables
            for rid, blocks in table.req_to_blocks.items()
        )

    def _finish_pause(self) -> None:
        is_copying = bool(self._runner.loads or self._moves.copies or self._is_saving)
        if self._pause == PauseProgress.BEGUN and not self._runner.in_flight and not is_copying:
            self._pause = PauseProgress.COMPLETE
            self._reset(resets_running=True, resets_connector=self._can_reset_connector)
            if self._config.sleeps:
                self._sleep()
            self.log.notice(seen.Paused())

    def _sleep(self) -> None:
        """Discard all KV, as a sleep at level 1 does."""
        self._runner.device.memory.clear()

    def _reset(self, *, resets_running: bool, resets_connector: bool = False) -> bool:
        """Reset the cache of the release; returns whether it did.

        If blocks wait for passes in flight, a release raises an error; its client gets it, and the engine goes on.
        """
        if resets_running:
            for request in self._requests.live.values():
                if any(request.req is req for req in self.built.scheduler.running):
                    request.dropped = self._runner.last_launch
        try:
            return bool(self.built.core.reset_prefix_cache(resets_running, resets_connector))
        except RuntimeError:
            if not getattr(self.built.scheduler, "deferred_frees", ()):
                raise
            return False

    def _preempted(self, original: Callable[..., None], req: Any, *args: Any, **kwargs: Any) -> None:
        self.log.notice(seen.Retracted(self.built.number_of(req.request_id), req.num_output_tokens, ()))
        original(req, *args, **kwargs)

    def _loaded(self, original: Callable[..., None], req: Any) -> None:
        """The scheduler notes the end of a load; after a failure it may free the blocks."""
        original(req)
        number = self.built.number_of(req.request_id)
        self._runner.loads.loading.pop(number, None)
        units = [block.block_id for block in self.built.tables[0].req_to_blocks.get(req.request_id, ())]
        if units:
            self.log.notice(seen.Loaded(number, req.num_computed_tokens, units))
        else:
            self.log.notice(seen.Retracted(number, req.num_output_tokens, ()))

    def _launched(self, flight: VllmPass) -> None:
        for event in launched(flight, self._config, self._runner.device):
            self.log.notice(event)
        self._moves.settle()

    def _completed(self, flight: VllmPass) -> None:
        for event in completed(flight, self._requests):
            self.log.notice(event)


def faults_of(release: VllmRelease, config: VllmConfig) -> Mapping[str, str]:
    """The faults that can happen to an engine core of this configuration, each with its effect."""
    can_fail = release.has("failed_requests") or len(config.groups) == 1
    return CLIENT_FAULTS | {name: CONNECTOR_FAULTS[name] for name in config.faults if can_fail or name != LOAD_FAILS}
