"""A release of vLLM behind EnginePort: its own engine core, scheduler and cache manager; only the model is not."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import swarden.invariants.events as seen
from swarden.harness.core.faults import CLIENT_FAULTS
from swarden.harness.core.origins import EngineCode
from swarden.harness.core.port import Streamed, Submission
from swarden.harness.engines.vllm.boot import VllmRelease
from swarden.harness.engines.vllm.capture import VllmFacts
from swarden.harness.engines.vllm.config import PART_FAULTS, VllmConfig
from swarden.harness.engines.vllm.connector import LOAD_FAILS
from swarden.harness.engines.vllm.core import build
from swarden.harness.engines.vllm.layers import POOL
from swarden.harness.engines.vllm.moves import Moves
from swarden.harness.engines.vllm.parts.pause import Pausing
from swarden.harness.engines.vllm.passes import VllmPass
from swarden.harness.engines.vllm.requests import VllmRequests
from swarden.harness.engines.vllm.runner import Runner
from swarden.harness.kit import drafts, tags
from swarden.harness.kit.calls import intercept
from swarden.harness.kit.reported import OF_CLIENTS, OF_OWNERS, OF_PASSES, names_of
from swarden.invariants.events import FinishReason

WORKER = [f"{__package__}.{name}" for name in ("runner", "device", "passes", "parts.states")]
DECISIONS = (
    "vllm.v1.core.sched.scheduler.Scheduler.schedule",
    "vllm.v1.core.sched.scheduler.Scheduler._handle_blocked_waiting_request",
    "vllm.v1.core.sched.scheduler.Scheduler._update_waiting_for_remote_kv",
    "vllm.v1.core.kv_cache_manager.KVCacheManager.allocate_slots",
)
CODE = EngineCode(
    "vllm", ledgers="vllm.v1.core.block_pool", stand_ins=[*WORKER, drafts.__name__, tags.__name__], decisions=DECISIONS
)
OF_CORE = (seen.Admitted, seen.Retracted, seen.Loaded, seen.LetGo, seen.Paused, seen.Resumed, seen.CacheReset)
REPORTED = names_of([*OF_PASSES, *OF_OWNERS, *OF_CLIENTS, *OF_CORE])
# Laws that could not fail: the stand-in samples and accepts drafts, and says whose results count; the lengths of a
# record are counted in whole blocks, and from the passes in flight; an aborted request is not shown any more; the
# adapter keeps the sessions and their turns; when a reset must be done is not known.
ONE_SIDED = frozenset(
    {
        "aborted_requests_stop_decoding",
        "accepted_drafts_match_the_model",
        "discarded_results_are_stale",
        "launched_tokens_are_in_flight",
        "cursors_are_page_aligned",
        "idle_engine_can_be_reset",
        *("session_has_one_turn", "kept_records_match_their_sessions", "session_outlives_its_turn"),
    }
)
FAULTS: Mapping[str, str] = {**CLIENT_FAULTS, **PART_FAULTS}


class VllmEngine(VllmFacts):
    """One engine core; a step is one of its steps, with or without its queue of batches."""

    code = CODE
    reported = REPORTED
    one_sided = ONE_SIDED
    pool_names: Sequence[str] = (POOL,)
    forks = True
    has_grammars = turns_have_grammars = False  # the part sets them

    def __init__(self, release: VllmRelease, config: VllmConfig) -> None:
        super().__init__(faults_of(release, config))
        self.config, self.requests = config, VllmRequests(release, config, self.log.notice)
        runner = self.make_runner(release)
        built = build(release, config, runner)
        self.walk(config, built, runner, Moves(built, self.report, self.requests.owner))
        self.log.when_traced = self.moves.watch_locks
        intercept(built.scheduler, "_preempt_request", self._preempted)
        intercept(built.scheduler, "_update_waiting_for_remote_kv", self._loaded)
        intercept(built.scheduler, "finish_requests", self._finished)
        intercept(built.scheduler, "_free_blocks", self._let_go)
        self.pauses = Pausing(self)
        self.parts = [self.pauses]
        if not release.has("uncached_first"):
            self.one_sided |= {"evictions_serve_takes"}
        if built.core.batch_queue is None:
            self.reported -= names_of([seen.Discarded])
        self.provide(config.parts, config, release)

    def make_runner(self, release: VllmRelease) -> Runner:
        return Runner(release, self.config, self)

    @property
    def has_work(self) -> bool:
        return super().has_work or bool(self.built.scheduler.has_requests())

    def submit(self, submission: Submission) -> int:
        number, reqs = self.requests.new(submission, self.built.hasher)
        for sequence in range(submission.sequences):
            self.runner.device.namespaces[number + sequence] = submission.namespace
        self.runner.device.grammars[number] = (submission.grammar, len(submission.tokens))
        for req in reqs:
            self.admit(req)
        return number

    def abort(self, request_id: int) -> None:
        if request_id in self.requests and (parent := self.requests.live[request_id].parent):
            self.built.core.abort_requests(self.requests.front.abort(parent))
            self.requests.collect()
        elif request_id in self.requests:
            self.built.core.abort_requests([self.requests.id_of(request_id)])
            self.requests.end(request_id, FinishReason.ABORT)

    def step(self) -> Sequence[Streamed]:
        self.begin_step()
        core = self.built.core
        if core.batch_queue or self.built.scheduler.has_requests():  # in a pause, too: as EngineCoreProc.has_work
            outputs, has_computed = core.step() if core.batch_queue is None else core.step_with_batch_queue()
            core.post_step(has_computed)
            for of_client in (outputs or {}).values():
                for output in of_client.outputs:
                    self.take(self.built.number_of(output.request_id), output)
                if aborted := self.requests.process(of_client.outputs):
                    core.abort_requests(aborted)
        self.pauses.finish()
        return self.requests.streamed()

    def flush(self) -> bool:
        return self.pauses.flush()

    def clear(self) -> None:
        self.log.captures = 0
        for part in self.parts:
            part.clear()
        self.pauses.reset(resets_running=False)

    def pressure(self, pool: str, pages: int) -> bool:
        """Not while a pause waits for passes: it ends with a reset, for which the release wants all blocks back."""
        return not self.pauses.has_begun and self.moves.hold(pages)

    def pause(self) -> bool:
        return self.pauses.pause()

    def resume(self) -> None:
        self.pauses.resume()

    def admit(self, req: Any) -> None:
        """Hand a request to the scheduler."""
        self.built.core.add_request(req)

    def take(self, number: int, output: Any) -> None:
        """Take an output of the engine core for a request."""
        self.requests.take(number, output)

    def _preempted(self, original: Callable[..., None], req: Any, *args: Any, **kwargs: Any) -> None:
        self.log.notice(seen.Retracted(self.built.number_of(req.request_id), req.num_output_tokens, ()))
        original(req, *args, **kwargs)

    def _loaded(self, original: Callable[..., None], req: Any) -> None:
        """The scheduler notes the end of a load; after a failure it may free the blocks."""
        original(req)
        number = self.built.number_of(req.request_id)
        self.runner.loads.loading.pop(number, None)
        units = [block.block_id for block in self.built.tables[0].req_to_blocks.get(req.request_id, ())]
        if units:
            self.log.notice(seen.Loaded(number, req.num_computed_tokens, units))
        else:
            self.log.notice(seen.Retracted(number, req.num_output_tokens, ()))

    def _finished(self, original: Callable[..., Any], rids: Any, status: Any) -> Any:
        """One by one: the release makes a set of the ids, whose order differs from process to process."""
        if rids is None or isinstance(rids, str):
            return original(rids, status)
        return [req for rid in sorted(rids, key=self.built.number_of) for req in original(rid, status)]

    def _let_go(self, original: Callable[[Any], None], req: Any) -> None:
        """A request has ended, and its blocks are freed: also those that were kept for a transfer or a save."""
        original(req)
        number = self.built.number_of(req.request_id)
        if self.requests.owner(number).kind == seen.HANDOVER_KIND:
            self.log.notice(seen.LetGo(number, "read or saved, or its lease has ended"))

    def launched(self, flight: VllmPass) -> None:
        super().launched(flight)
        self.report(self.settle())


def faults_of(release: VllmRelease, config: VllmConfig) -> Mapping[str, str]:
    """The faults that can happen to an engine core of this configuration, each with its effect."""
    can_fail = release.has("failed_requests") or len(config.groups) == 1
    return CLIENT_FAULTS | {name: effect for name, effect in config.faults.items() if can_fail or name != LOAD_FAILS}
