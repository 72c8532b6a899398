"""A release of transformers behind EnginePort: its continuous batching, but not its thread and the model."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import swarden.invariants.events as seen
from swarden.harness.core.event_log import EventLog
from swarden.harness.core.faults import CLIENT_FAULTS, FaultPlan
from swarden.harness.core.origins import EngineCode
from swarden.harness.core.port import EnginePort, Streamed, Submission
from swarden.harness.engines.transformers.boot import TransformersRelease
from swarden.harness.engines.transformers.capture import TransformersCapture
from swarden.harness.engines.transformers.config import TransformersConfig
from swarden.harness.engines.transformers.core import build, number_of
from swarden.harness.engines.transformers.model import TAG_BYTES, TagLayers
from swarden.harness.engines.transformers.passes import Entry
from swarden.harness.engines.transformers.requests import TransformersRequests
from swarden.harness.kit import tags
from swarden.harness.kit.calls import intercept
from swarden.harness.kit.passes import Pass, Passes
from swarden.harness.kit.reported import OF_CLIENTS, OF_OWNERS, OF_PASSES, names_of
from swarden.harness.kit.tags import ReadTags
from swarden.invariants import reference, view
from swarden.invariants.events import REQUEST_KIND, Owner
from swarden.invariants.reuse import sharing

BATCHING = "transformers.generation.continuous_batching"
CODE = EngineCode(
    "transformers",
    ledgers=f"{BATCHING}.cache_allocators.cache_pool",
    stand_ins=[f"{__package__}.model", tags.__name__],
    decisions=(f"{BATCHING}.scheduler.Scheduler._process_candidates",),
    core=BATCHING,
)
REPORTED = names_of([*OF_PASSES, *OF_OWNERS, *OF_CLIENTS, seen.Admitted, seen.Retracted, seen.CopiedIn])
DRAFTS = names_of([seen.Proposed, seen.Verified])
# Laws that could not fail: the adapter says whose results count, and rounds the lengths that are shared to pages.
# The answers of a tiny model are compared by their tokens, without a difference of logits.
ONE_SIDED = frozenset({"discarded_results_are_stale", "cursors_are_page_aligned", "logits_match_uncached_model"})


class TransformersEngine(EnginePort):
    """One batch processor; a step is one iteration of its manager's loop."""

    forks = True

    def __init__(self, release: TransformersRelease, config: TransformersConfig) -> None:
        self.log = EventLog(code=CODE)
        self.faults = FaultPlan(CLIENT_FAULTS, on_fire=lambda fault: self.log.notice(seen.Fired(fault)))
        self.core = build(release, config, *self._model(release, config))
        longest = release.code("longest")(self.core.cache) + 1 if config.checks_length else config.max_context_len
        longest = min(config.max_context_len, longest)
        self._requests = TransformersRequests(self.core, longest, self.log.notice)
        self._capture = TransformersCapture(config, self.core, self._requests, self.log.notice)
        self._passes = Passes[Entry]()
        self._begun: dict[Any, Pass[Entry]] = {}  # by the release's object for the first request
        self._steps, self._has_begun = 0, not config.asynchronous
        self._follow()
        unreported = DRAFTS if config.asynchronous else DRAFTS | names_of([seen.Discarded])
        self._unreported = seen.ALL_EVENTS - self._reported | unreported | ONE_SIDED
        self._after = self._found()

    def reference(self) -> reference.Reference:
        return reference.Reference(tags.VOCABULARY, tuple([component.window for component in self._capture.components]))

    @property
    def _reported(self) -> frozenset[str]:
        return REPORTED

    def _model(self, release: TransformersRelease, config: TransformersConfig) -> tuple[Any, int]:
        """The model, and the bytes of the KV of a token in one of its layers."""
        return TagLayers(release.torch, config, release.code("LogitsProcessorList"), self._read), TAG_BYTES

    @property
    def has_work(self) -> bool:
        return bool(self._requests or self._passes.in_flight or self.core.processor.has_pending_requests())

    def submit(self, submission: Submission) -> int:
        return self._requests.submit(submission)

    def abort(self, request_id: int) -> None:
        if request_id in self._requests:
            self.core.manager.cancel_request(self._requests.live[request_id].rid)

    def step(self) -> Sequence[Streamed]:
        self._steps += 1
        last_launch, outputs = self._passes.last_launch, self.core.manager.output_router.output_queue
        loops_on = self.core.manager._generation_loop_body(self.core.processor, bootstrapping=not self._has_begun)
        self._has_begun |= not loops_on
        if last_launch == self._passes.last_launch:
            self._complete_unused()
        while not outputs.empty():
            self._requests.take(outputs.get_nowait())
        return self._requests.streamed()

    def clear(self) -> None:
        self.core.cache.evict_cached_blocks()
        for pool in (self.core.cache.pool, self.core.offloading._cpu_pool):
            if pool is not None:
                pool.try_to_free_sectors()

    def capture(self) -> view.Snapshot:
        for pools in self._capture.pools:
            pools.settle()
        self._after = sharing(self._after, self._found())
        return self._after

    def _found(self) -> view.Snapshot:
        return self._capture.capture(self._steps, self._passes.in_flight, self._unreported)

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
        return self._working_for(rid, original, rid, *args, **kwargs)

    def _working_for(self, rid: str, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        pools = self._capture.pools[0]
        before, pools.owner = pools.owner, Owner(REQUEST_KIND, number_of(rid))
        try:
            return original(*args, **kwargs)
        finally:
            pools.owner = before

    def _allocate(self, original: Callable[..., Any], rid: str, past_length: int, query_length: int) -> None:
        self._requests.admit(number_of(rid), past_length)
        self._for_a_request(original, rid, past_length, query_length)

    def _acquire(self, original: Callable[..., Any], rid: str, prefix_len: int, blocks: Sequence[int]) -> None:
        self._requests.admit(number_of(rid), prefix_len)
        original(rid, prefix_len, blocks)

    def _fork(self, group: int, original: Callable[..., Any], rid: str, child: str, past_length: int) -> Any:
        number, pools = number_of(child), self._capture.pools[0]
        self._requests.admit(number, past_length)
        copied, new = self._working_for(child, original, rid, child, past_length)
        self.log.notice(seen.CopiedIn(pools.names[group], tuple(pools.units(group, new)), Owner(REQUEST_KIND, number)))
        return copied, new

    def _cancel(self, original: Callable[..., Any]) -> Any:
        rids = sorted(self.core.scheduler._requests_to_cancel)
        states = original()
        for rid in rids:
            self._requests.abort(number_of(rid))
        return states

    def _wait(self, original: Callable[..., Any], state: Any) -> None:
        self._requests.retract(number_of(state.request_id), self._requests.num_outputs(state))
        original(state)

    def _restore(self, original: Callable[..., Any], batch: Sequence[Any]) -> None:
        rids = [entry.state.request_id for entry in batch if entry.state.is_cpu_offloaded]
        original(batch)
        for rid in rids:
            for component, units in zip(self._capture.components, self._capture.tables(rid), strict=True):
                self.log.notice(seen.CopiedIn(component.pool, units, Owner(REQUEST_KIND, number_of(rid))))

    def _prepare(self, original: Callable[..., Any], **kwargs: Any) -> None:
        """Report the launch of a pass: after this call the loop computes it without a further decision."""
        batch = kwargs["requests_in_batch"]
        with_tokens = [scheduled for scheduled in batch if scheduled.query_length]  # the others wait for their fork
        entries = [self._entry(scheduled) for scheduled in with_tokens]
        original(**kwargs)
        flight = self._passes.launch(entries)
        self._begun[batch[0]] = flight
        self.log.notice(flight.launched())
        for request, start, end, _, tables, _ in entries:
            for group, (component, table) in enumerate(zip(self._capture.components, tables, strict=True)):
                units = self._capture.units_from(group, table, start, end)
                self.log.notice(seen.Written(flight.launch, request, component.pool, start, end, units, group))

    def _entry(self, scheduled: Any) -> Entry:
        number, start = number_of(scheduled.state.request_id), scheduled.state.position_offset
        request = self._requests.live.get(number)
        run = request.run if request is not None else -1
        return Entry(
            number, start, start + scheduled.query_length, run, self._capture.tables(scheduled.state.request_id)
        )

    def _read(self, index: int, group: int, read: ReadTags) -> None:
        flight, pool = self._passes.in_flight[-1], self._capture.components[group].pool
        request = flight.entries[index].request
        flight.reports.append(seen.Read(flight.launch, request, pool, read.first, read.tags, group))

    def _complete(self, original: Callable[..., Any]) -> Any:
        """The loop asks for the result of a pass; a pass whose results are not used may have completed before."""
        updates = original()
        flight = self._begun.pop(updates[0][0]) if updates[0] else None
        if flight in self._passes.in_flight:
            self._end(flight)
        return updates

    def _complete_unused(self) -> None:
        """Complete the passes whose results are not used, as a device does: an idle loop never asks for them."""
        for flight in list(self._passes.in_flight):
            if not any(map(self._requests.counts, flight.entries)):
                self._end(flight)

    def _end(self, flight: Pass[Entry]) -> None:
        self._passes.complete(flight)
        for event in flight.completed(self._requests.counts):
            self.log.notice(event)
