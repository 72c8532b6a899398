"""The strict check of a scheduler that a server has built, and the calls by which it follows that scheduler."""

from collections import Counter, deque
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from operator import attrgetter
from types import ModuleType
from typing import Any, NamedTuple

import msgspec

import swarden.invariants.events as seen
from swarden.harness.core.oplog import Header
from swarden.harness.core.ops import Flush, Submit
from swarden.harness.engines.vllm.adapter import CODE, REPORTED
from swarden.harness.engines.vllm.boot import VllmRelease
from swarden.harness.engines.vllm.capture import VllmFacts
from swarden.harness.engines.vllm.config import PRIORITY
from swarden.harness.engines.vllm.core import BuiltCore
from swarden.harness.engines.vllm.layers import POOL
from swarden.harness.engines.vllm.moves import Moves
from swarden.harness.engines.vllm.requests import VllmRequest, VllmRequests
from swarden.harness.engines.vllm.runner import Runner
from swarden.harness.engines.vllm.running import RequestNumbers, built_of, config_of, differences
from swarden.harness.kit.calls import Wrap, intercept
from swarden.harness.kit.reported import names_of
from swarden.harness.kit.settings import flat
from swarden.harness.strict.follow import MAX_OPS, Attachment, Follow, UnknownScheduler
from swarden.harness.strict.follow import wrap as wrap_calls
from swarden.harness.strict.live import Compare, Live, LivePool, Terms
from swarden.harness.strict.owners import OwnerTable, wrongly_owned_unit
from swarden.harness.strict.recording import RecordedSubmit
from swarden.invariants.events import REQUEST_KIND, FinishReason, Owner
from swarden.invariants.reuse import sharing
from swarden.invariants.view import FREE, Snapshot
from swarden.invariants.violation import Violation

OF_THE_PORT = names_of(
    [seen.Fired, seen.Loaded, seen.Paused, seen.Proposed, seen.Read, seen.Rejected, seen.Resumed, seen.Verified]
)
BLOCK_ID = attrgetter("block_id")
NULL = 0  # the null block, which stands where a table has none


class LiveFacts(VllmFacts):
    """The facts of a running scheduler, which a server calls."""

    code = CODE
    reported = REPORTED - OF_THE_PORT
    submit: Any = None
    abort: Any = None
    step: Any = None

    def __init__(self, events: deque[NamedTuple], numbers: RequestNumbers) -> None:
        super().__init__()
        self._events, self._numbers = events, numbers

    def report(self, events: Iterable[NamedTuple]) -> None:
        self._events.extend(events)

    def number_of(self, rid: str) -> int:
        return self._numbers(rid)


class LiveBlocks:
    """The terms and the holders of the pool: the blocks in the tables of the requests.

    The cost is a pass over these tables.
    """

    def __init__(self, built: BuiltCore) -> None:
        self._built, self.capacity = built, len(built.pool.blocks) - 1

    def terms(self) -> Sequence[Terms]:
        units = set(self._units_in_tables())
        num_held = len(units) - (NULL in units)
        return (Terms(POOL, self.capacity, self._built.pool.get_num_free_blocks(), uncached=num_held),)

    def uncached(self, _pool: str) -> Counter[Owner]:
        """The blocks of each request; a shared one is of the first request that has it."""
        owners: dict[int, Owner] = {}
        for owner, block in self._in_tables():
            owners.setdefault(block.block_id, owner)
        return Counter(owners.values())

    def wrongly_shared(self, table: OwnerTable, _moved: Collection[Owner]) -> Sequence[Violation]:
        """A block counts at least the places in tables that have it."""
        pool, counts = self._built.pool.blocks, Counter(self._units_in_tables())
        wrong = {unit: list[Owner]() for unit, count in counts.items() if unit != NULL and pool[unit].ref_cnt < count}
        for owner, block in self._in_tables() if wrong else ():
            if block.block_id in wrong:
                wrong[block.block_id].append(owner)
        return [
            wrongly_owned_unit(table, unit, owners if pool[unit].ref_cnt > 0 else [FREE, *owners[:1]])
            for unit, owners in wrong.items()
        ]

    def _units_in_tables(self) -> Iterator[int]:
        """The blocks in the tables, one for each place. A loop in Python would cost more than the rest of `sums`."""
        requests = (table.req_to_blocks.values() for table in self._built.tables)
        return map(BLOCK_ID, chain.from_iterable(chain.from_iterable(requests)))

    def _in_tables(self) -> Iterator[tuple[Owner, Any]]:
        for table in self._built.tables:
            for rid, blocks in table.req_to_blocks.items():
                owner = Owner(REQUEST_KIND, self._built.number_of(rid))
                for block in blocks:
                    if not block.is_null:
                        yield owner, block


class VllmAttachment(Attachment):
    """Follows the calls to a scheduler.

    A step of the engine core is a call of `schedule`, and one of `update_from_output` unless the queue of batches is
    not full yet.  For a census, a runner follows the passes as the stand-in for the model runner does.
    """

    def __init__(self, release: VllmRelease, scheduler: Any, wrap: Wrap = intercept) -> None:
        """Raises UnknownScheduler if the scheduler has parts that the check does not know."""
        super().__init__(wrap)
        self._number_of = RequestNumbers(scheduler.requests)
        self._built = built_of(release, scheduler, self._number_of, wrap)
        self._config = config_of(release, scheduler)
        self._facts = LiveFacts(self._events, self._number_of)
        self._facts.requests = self._requests = VllmRequests(release, self._config, self._notice)
        self._num_in_flight = 0
        self._is_in_core_step = False
        self._submits: list[RecordedSubmit] = []  # since the last step or call of another kind
        self._moves: Moves | None = None  # for an audit or a census
        self._runner: Runner | None = None  # for a census
        blocks, configs = LiveBlocks(self._built), [msgspec.to_builtins(flat(self._config))]
        unpaused = release.code("PauseState").UNPAUSED
        self.live = Live(
            handlers={},
            terms=blocks.terms,
            uncached=blocks.uncached,
            pools=[LivePool(POOL, "block", blocks.capacity)],
            holders=partial(self._audited, blocks),
            capture=partial(self._capture, release),
            has_inputs=lambda: self._is_in_step,
            needs_no_pass=lambda: not self._requests,
            is_paused=lambda: bool(scheduler.pause_state != unpaused),
            header=lambda: Header(engine="vllm", version=release.text, configs=configs),
            max_recorded_ops=MAX_OPS,
            lost=differences(scheduler),
        )

    def added(self, req: Any) -> None:
        """A request is about to enter the queue."""
        if req.resumable:
            raise UnknownScheduler(f"request {req.request_id} streams its input, which is not known")
        self._begin_input()
        number, namespace = self._number_of.begin(req.request_id), self._number_of.of_namespace(_salt(req))
        self._requests.live[number] = VllmRequest(number, req, namespace)
        if req.mm_features or req.prompt_token_ids is None:
            self._recorder.lose("requests with other inputs than tokens")
        else:
            op = Submit(
                tokens=tuple(req.prompt_token_ids),
                max_new_tokens=req.max_tokens,
                priority=-req.priority,
                namespace=namespace,
            )
            self._submits.append(RecordedSubmit(number, op))

    def finished(self) -> None:
        """Requests have been aborted, or ended by an error; an abort within a step is replayed after it."""
        ended = [number for number, request in self._requests.live.items() if request.req.is_finished()]
        if ended and self._is_in_core_step:
            self._recorder.lose("aborts while a pass was computed")
        elif ended:
            self._begin_input()
            self._record_submits()
        for number in ended:
            if not self._is_in_core_step:
                self._aborted(number)
            self._requests.end(number, FinishReason.ABORT)

    def preempting(self, req: Any) -> None:
        self._notice(seen.Retracted(self._built.number_of(req.request_id), req.num_output_tokens, ()))

    def scheduling(self) -> None:
        """A step of the engine core begins."""
        if self._is_in_core_step:
            self._end_core_step()
        if self._has_inputs:
            self._record_submits()
            self._begin_step()
        self._is_in_core_step = True

    def scheduled(self, output: Any) -> None:
        """A pass is about to be launched; the step ends if the queue of batches has a place for another pass."""
        if self._runner is not None:
            self._runner.launch(output)
        self._settle()
        self._num_in_flight += 1
        if output.num_scheduled_tokens and self._num_in_flight < self._config.most_launches:
            self._end_core_step()

    def completing(self) -> None:
        """The result of a pass is about to be processed."""
        if not self._is_in_core_step:
            self._record_submits()
        self._is_in_core_step = True
        self._num_in_flight -= 1
        if self._runner is not None:
            self._runner.land()

    def updated(self, outputs: Mapping[int, Any]) -> None:
        for of_client in outputs.values():
            for output in of_client.outputs:
                if output.finish_reason is not None:  # of the others, nothing is recorded or checked
                    self._requests.take(self._built.number_of(output.request_id), output)
        self._end_core_step()

    def resetting(self, resets_running: bool) -> None:
        """The cache is about to be reset; if all running requests are preempted, the results of passes are dropped."""
        self._begin_input()
        self._record_submits()
        if not resets_running:
            self._recorder.record(Flush())
            return
        self._recorder.lose("resets that preempted the running requests")
        for request in self._requests.live.values():
            request.run += any(request.req is req for req in self._built.scheduler.running)

    def reset(self, is_done: bool) -> None:
        """The cache was reset, unless a request has blocks; then the op-log begins anew if there is no request."""
        if self._moves is not None:
            self._events.extend(self._moves.settle())
        if is_done and not self._requests:
            self._recorder.restart()

    def _watched(self) -> Moves:
        if self._moves is None:
            self._moves = Moves(self._built, self._facts.report, self._requests.owner)
        return self._moves

    def _audited(self, blocks: LiveBlocks, tables: Mapping[str, OwnerTable]) -> Compare:
        self._watched()
        return partial(blocks.wrongly_shared, tables[POOL])

    def _capture(self, release: VllmRelease, step: int, before: Snapshot | None) -> Snapshot:
        if before is None:
            self._runner = Runner(release, self._config, self._facts)
            self._facts.walk(self._config, self._built, self._runner, self._watched())
        self._facts.audit_in_turn()
        self._facts.moves.blocks.look()
        after = replace(self._facts.snapshot(), step=step)
        return after if before is None else sharing(before, after)

    def _begin_input(self) -> None:
        """A client calls between two steps: end the step before."""
        if self._is_in_core_step:
            self._end_core_step()
        self._has_inputs = True

    def _record_submits(self) -> None:
        """Record the new requests in the order in which they are served; a replay has no times of arrival."""
        submits, self._submits = self._submits, []
        if self._config.policy == PRIORITY:
            submits.sort(key=lambda submit: self._arrival(submit.request_id))
            new = {submit.request_id for submit in submits}
            earlier = [number for number in self._requests.live if number not in new]
            if submits and any(self._arrival(number) > self._arrival(submits[0].request_id) for number in earlier):
                self._recorder.lose("requests that overtook earlier ones")
        for submit in submits:
            self._recorder.record_request(submit)

    def _arrival(self, number: int) -> tuple[float, str]:
        """The key that orders requests of the same priority."""
        req = self._requests.live[number].req
        return req.arrival_time, req.request_id

    def _end_core_step(self) -> None:
        self._is_in_core_step = False
        streamed = self._requests.streamed()
        ended = [last.request_id for last in streamed if last.finish_reason not in (None, FinishReason.LENGTH)]
        self._end_step([number for number in ended if not self._recorder.is_aborted(number)])

    def _settle(self) -> None:
        if self._runner is not None and self._moves is not None:
            self._events.extend(self._moves.settle())

    def _take_events(self) -> Iterable[NamedTuple]:
        self._settle()
        return super()._take_events()


def _salt(req: Any) -> Hashable:
    """The key that separates the cached blocks of this request from others of the same tokens; None for no key."""
    salt = req.cache_salt, None if req.lora_request is None else req.lora_request.lora_name
    return salt if any(salt) else None


CALLS: Mapping[str, Follow] = {
    "__init__": Follow(starts=True),
    "add_request": Follow(lambda check, arguments: check.added(arguments[0])),
    "finish_requests": Follow(after=lambda check, _: check.finished()),
    "schedule": Follow(lambda check, _: check.scheduling(), VllmAttachment.scheduled, outermost=True),
    "_preempt_request": Follow(lambda check, arguments: check.preempting(arguments[0])),
    "update_from_output": Follow(lambda check, _: check.completing(), VllmAttachment.updated, outermost=True),
    "reset_prefix_cache": Follow(lambda check, arguments: check.resetting(arguments[0]), VllmAttachment.reset),
}


def wrap(module: ModuleType, setting: Mapping[str, str]) -> None:
    """Wrap the constructor of the scheduler class, and the calls that are followed."""
    wrap_calls(module.Scheduler, CALLS, "vllm", setting, _attach)


def _attach(version: str, scheduler: Any, _call: str, wrap: Wrap) -> VllmAttachment:
    return VllmAttachment(VllmRelease(version), scheduler, wrap)
