"""A release of transformers behind EnginePort: its continuous batching, but not its thread and the model."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import swarden.invariants.events as seen
from swarden.harness.core.ops import ResetCause
from swarden.harness.core.origins import EngineCode
from swarden.harness.core.port import Streamed, Submission
from swarden.harness.engines.transformers.boot import TransformersRelease
from swarden.harness.engines.transformers.capture import TransformersFacts
from swarden.harness.engines.transformers.config import TransformersConfig
from swarden.harness.engines.transformers.core import build, number_of
from swarden.harness.engines.transformers.model import TAG_BYTES, TagLayers
from swarden.harness.engines.transformers.requests import TransformersRequests
from swarden.harness.kit import tags
from swarden.harness.kit.calls import intercept
from swarden.harness.kit.passes import Pass, TableEntry
from swarden.harness.kit.reported import OF_CLIENTS, OF_OWNERS, OF_PASSES, names_of
from swarden.harness.kit.tags import ReadTags
from swarden.invariants.events import REQUEST_KIND, Owner

BATCHING = "transformers.generation.continuous_batching"
CODE = EngineCode(
    "transformers",
    ledgers=f"{BATCHING}.cache_allocators.cache_pool",
    stand_ins=[f"{__package__}.model", tags.__name__],
    decisions=(f"{BATCHING}.scheduler.Scheduler._process_candidates",),
    core=BATCHING,
)
OF_SCHEDULER = (seen.Admitted, seen.Retracted, seen.CopiedIn, seen.CacheReset)
REPORTED = names_of([*OF_PASSES, *OF_OWNERS, *OF_CLIENTS, *OF_SCHEDULER]) - names_of([seen.Proposed, seen.Verified])
# Laws that could not fail: the adapter says whose results count, and rounds the lengths that are shared to pages.
# The answers of a tiny model are compared by their tokens, without a difference of logits.  New weights are loaded only
# between two calls of generate_batch, which no release refuses.
ONE_SIDED = frozenset(
    {
        "discarded_results_are_stale",
        "cursors_are_page_aligned",
        "logits_match_uncached_model",
        "idle_engine_can_be_reset",
        "reset_spares_kv_in_use",
    }
)


class TransformersEngine(TransformersFacts):
    """One batch processor; a step is one iteration of its manager's loop."""

    code = CODE
    reported = REPORTED
    one_sided = ONE_SIDED
    vocabulary = tags.VOCABULARY
    forks = True

    def __init__(self, release: TransformersRelease, config: TransformersConfig) -> None:
        super().__init__()
        self.attach(config, build(release, config, *self._model(release, config)))
        longest = release.code("longest")(self.core.cache) + 1 if config.checks_length else config.max_context_len
        longest = min(config.max_context_len, longest)
        self.requests = TransformersRequests(self.core, longest, self.log.notice)
        self._begun: dict[Any, Pass[TableEntry]] = {}  # by the release's object for the first request
        self._is_persistent, self._is_asynchronous = config.persistent_manager, config.asynchronous
        self._has_begun = not config.asynchronous
        if not config.asynchronous:
            self.reported -= names_of([seen.Discarded])
        self._follow()

    def _model(self, release: TransformersRelease, config: TransformersConfig) -> tuple[Any, int]:
        """The model, and the bytes of the KV of a token in one of its layers."""
        return TagLayers(release.torch, config, release.code("LogitsProcessorList"), self._read), TAG_BYTES

    @property
    def has_work(self) -> bool:
        return super().has_work or bool(self.core.processor.has_pending_requests())

    def submit(self, submission: Submission) -> int:
        if self._can_begin_session:
            self._begin_session()
        return self.requests.submit(submission)

    def reset(self, cause: ResetCause) -> bool:
        """The weights change between two calls of generate_batch, with one manager for both, as in training."""
        if cause != ResetCause.WEIGHTS or not self._can_begin_session:
            return False
        self._begin_session()
        self.log.notice(seen.CacheReset(is_done=True, idle_steps=0, is_copying=False))
        return True

    @property
    def _can_begin_session(self) -> bool:
        return self._is_persistent and bool(self.passes.last_launch) and not self.has_work

    def _begin_session(self) -> None:
        """End the loop of the last call of generate_batch, and begin the loop of the next call."""
        processor = self.core.processor
        if self._is_asynchronous and self._has_begun:  # the results of the last pass are asked for then
            processor.inputs_and_outputs.current_pair = 1 - processor.inputs_and_outputs.current_pair
            processor.update_batch()
        self.core.manager._create_batch_processor()
        self._has_begun = not self._is_asynchronous

    def abort(self, request_id: int) -> None:
        if request_id in self.requests:
            self.core.manager.cancel_request(self.requests.live[request_id].rid)

    def step(self) -> Sequence[Streamed]:
        self.begin_step()
        last_launch, outputs = self.passes.last_launch, self.core.manager.output_router.output_queue
        loops_on = self.core.manager._generation_loop_body(self.core.processor, bootstrapping=not self._has_begun)
        self._has_begun |= not loops_on
        if last_launch == self.passes.last_launch:
            self._complete_unused()
        while not outputs.empty():
            self.requests.take(outputs.get_nowait())
        return self.requests.streamed()

    def clear(self) -> None:
        self.core.cache.evict_cached_blocks()
        for pool in (self.core.cache.pool, self.core.offloading._cpu_pool):
            if pool is not None:
                pool.try_to_free_sectors()

    def _follow(self) -> None:
        """Follow the calls that admit, retract and end requests, and those of a pass."""
        core, ios = self.core, self.core.processor.inputs_and_outputs
        intercept(ios, "prepare_batch_tensors", self._prepare)
        intercept(ios, "prepare_batch_update", self._complete)
        intercept(core.scheduler, "clear_cancelled_requests", self._cancel)
        intercept(core.scheduler, "add_waiting_request", self._wait)
        intercept(core.offloading, "restore_scheduled_requests", self._restore)
        for allocator in core.allocators:
            intercept(allocator, "allocate_cache_to_request", self._allocate)
            intercept(allocator, "acquire_prefix_blocks", self._acquire)
            intercept(allocator, "fork_blocks", partial(self._fork, allocator.index))
            for name in ("free_blocks", "mark_complete_blocks"):
                intercept(allocator, name, self._for_a_request)

    def _for_a_request(self, original: Callable[..., Any], rid: str, *args: Any, **kwargs: Any) -> Any:
        return self.worker.works_for(number_of(rid), original, rid, *args, **kwargs)

    def _allocate(self, original: Callable[..., Any], rid: str, past_length: int, query_length: int) -> None:
        self.requests.admit(number_of(rid), past_length)
        self._for_a_request(original, rid, past_length, query_length)

    def _acquire(self, original: Callable[..., Any], rid: str, prefix_len: int, blocks: Sequence[int]) -> None:
        self.requests.admit(number_of(rid), prefix_len)
        original(rid, prefix_len, blocks)

    def _fork(self, group: int, original: Callable[..., Any], rid: str, child: str, past_length: int) -> Any:
        number, pools = number_of(child), self.memories[0]
        self.requests.admit(number, past_length)
        copied, new = self.worker.works_for(number, original, rid, child, past_length)
        self.log.notice(seen.CopiedIn(pools.names[group], tuple(pools.units(group, new)), Owner(REQUEST_KIND, number)))
        return copied, new

    def _cancel(self, original: Callable[..., Any]) -> Any:
        rids = sorted(self.core.scheduler._requests_to_cancel)
        states = original()
        for rid in rids:
            self.requests.abort(number_of(rid))
        return states

    def _wait(self, original: Callable[..., Any], state: Any) -> None:
        self.requests.retract(number_of(state.request_id), self.requests.num_outputs(state))
        original(state)

    def _restore(self, original: Callable[..., Any], batch: Sequence[Any]) -> None:
        rids = [entry.state.request_id for entry in batch if entry.state.is_cpu_offloaded]
        original(batch)
        for rid in rids:
            for component, units in zip(self.components, self.tables(rid), strict=True):
                self.log.notice(seen.CopiedIn(component.pool, units, Owner(REQUEST_KIND, number_of(rid))))

    def _prepare(self, original: Callable[..., Any], **kwargs: Any) -> None:
        """Report the launch of a pass: after this call the loop computes it without a further decision."""
        batch = kwargs["requests_in_batch"]
        with_tokens = [scheduled for scheduled in batch if scheduled.query_length]  # the others wait for their fork
        entries = [self._entry(scheduled) for scheduled in with_tokens]
        original(**kwargs)
        self._begun[batch[0]] = flight = self.launch(entries)
        self.report_written(flight)

    def _entry(self, scheduled: Any) -> TableEntry:
        rid, start = scheduled.state.request_id, scheduled.state.position_offset
        return self.entry(number_of(rid), start, start + scheduled.query_length, self.tables(rid))

    def _read(self, index: int, group: int, read: ReadTags) -> None:
        self.read(self.passes.in_flight[-1], index, group, read)

    def _complete(self, original: Callable[..., Any]) -> Any:
        """The loop asks for the result of a pass; a pass whose results are not used may have completed before."""
        updates = original()
        flight = self._begun.pop(updates[0][0]) if updates[0] else None
        if flight in self.passes.in_flight:
            self.complete(flight)
        return updates

    def _complete_unused(self) -> None:
        """Complete the passes whose results are not used, as a device does: an idle loop never asks for them."""
        for flight in list(self.passes.in_flight):
            if not any(map(self.is_used, flight.entries)):
                self.complete(flight)
