"""A stand-in for the model runner: it knows what the scheduler's outputs say and nothing else.

A pass is computed when its result is asked for, which is as late as possible; passes are computed in launch order.
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import swarden.invariants.events as seen
from swarden.harness.engines.vllm.boot import VllmRelease
from swarden.harness.engines.vllm.config import VllmConfig
from swarden.harness.engines.vllm.connector import ConnectorWorker
from swarden.harness.engines.vllm.device import Device
from swarden.harness.engines.vllm.layers import POOL
from swarden.harness.engines.vllm.passes import PLACEHOLDER, REWOUND, UNKNOWN, Columns, VllmEntry, VllmPass

if TYPE_CHECKING:
    from swarden.harness.engines.vllm.capture import VllmFacts


class ResultFuture(NamedTuple):
    """A future, which is done when its result has been asked for."""

    get: Callable[[], Any]
    done: Callable[[], bool]

    def result(self, timeout: float | None = None) -> Any:
        return self.get()


class Runner:
    """The executor of an engine core, with the block tables that its scheduler has sent.

    It calls `facts` with each pass that computes.  The start of an entry behind drafts is known when these are
    verified; a pass with such entries counts as launched from then on.
    """

    def __init__(
        self, release: VllmRelease, config: VllmConfig, facts: "VllmFacts", device: Device | None = None
    ) -> None:
        self.release, self._facts = release, facts
        self._dropped = ("finished_req_ids", *(["preempted_req_ids"] if config.second_runner else []))
        self.number_of = facts.number_of
        self.tables: dict[int, list[list[int]]] = {}
        self.device = Device(config) if device is None else device
        self.loads = ConnectorWorker()
        self._prompt_lens: dict[int, int] = {}
        self._numbers: dict[str, int] = {}  # of the requests that have tables
        self._recent = deque([VllmPass(0, ())], maxlen=4)
        self._queue: list[VllmPass] = []  # not computed yet

    @property
    def last_launch(self) -> int:
        return self._last.launch

    @property
    def _last(self) -> VllmPass:
        return self._recent[-1]

    @property
    def in_flight(self) -> list[VllmPass]:
        return [flight for flight in self._queue if flight.entries]

    def copied_in(self, blocks: Iterable[int], request: int = 0) -> None:
        """A copy begins that writes these blocks, for a request if it is known."""
        owner = seen.Owner(seen.REQUEST_KIND, request)
        self._facts.report([seen.CopiedIn(POOL, tuple(filter(None, blocks)), owner)])

    def loaded_in_order(self, blocks: Sequence[int]) -> None:
        """A load begins behind what its pass does first: blocks are zeroed, and running states move."""
        flight = self._queue[-1]
        flight.copies = [(source, block) for source, block in flight.copies if source or block not in blocks]
        flight.loaded.update(blocks)
        self.copied_in(blocks)

    def launch(self, output: Any) -> VllmPass:
        """Queue the pass of a scheduler's output."""
        flight = self._received(output)
        self._queue.append(flight)
        if flight.entries and not flight.waiting:
            self._facts.launched(flight)
        return flight

    def land(self) -> None:
        """The oldest pass has been computed elsewhere."""
        flight = self._queue.pop(0)
        if flight.entries:
            self._facts.completed(flight)

    # The methods of an executor, as the engine core calls them.

    def execute_model(self, output: Any, non_block: bool = False) -> Any:
        flight = self.launch(output)
        self.loads.received(flight, output)
        return self._result(flight) if not flight.entries else ResultFuture(lambda: None, lambda: True)

    def sample_tokens(self, grammar_output: Any, non_block: bool = False) -> Any:
        result = self._result(self._queue[-1])
        return result if non_block else result.result()

    def take_draft_token_ids(self) -> Any:
        """The drafts after each output of the last pass that has been computed; none if it was long ago."""
        outputs = [flight.output for flight in self._recent if flight.output is not None and flight.entries]
        if not outputs:
            return None
        output = outputs[-1]
        results = zip(output.req_ids, output.sampled_token_ids, strict=True)
        sampled = [rid for rid, tokens in results if tokens]
        drafts = [list(self.device.drafts(self.number_of(rid))) for rid in sampled]
        return self.release.code("DraftTokenIds")(sampled, drafts)

    def collective_rpc(self, *args: Any, **kwargs: Any) -> None: ...

    def reset_mm_cache(self) -> None: ...

    reset_encoder_cache = reset_mm_cache

    def _received(self, output: Any) -> VllmPass:
        """Update the tables as the scheduler's output says, and launch its pass."""
        for name in self._dropped:
            for rid in getattr(output, name) or ():
                self._drop(rid)
        starts: dict[int, int] = {}
        scheduled = {entry.request for entry in self._last.entries}
        known: dict[int, Sequence[int]] = {}
        for new in output.scheduled_new_reqs:
            self._drop(new.req_id)  # those of an earlier turn
            request = self._numbers[new.req_id] = self.number_of(new.req_id)
            starts[request] = new.num_computed_tokens
            self.tables[request] = [list(group) for group in new.block_ids]
            self.device.states.restart(request)
            known[request] = list(getattr(new, "prefill_token_ids", None) or new.prompt_token_ids)
            self._prompt_lens[request] = len(new.prompt_token_ids)
        cached = output.scheduled_cached_reqs
        for rid, start, blocks in zip(cached.req_ids, cached.num_computed_tokens, cached.new_block_ids, strict=True):
            request = self.number_of(rid)
            starts[request] = start
            if rid in cached.resumed_req_ids:
                self.tables[request] = [list(group) for group in blocks]
                self.device.states.restart(request)
            elif blocks is not None:
                for table, new_blocks in zip(self.tables[request], blocks, strict=True):
                    table += new_blocks
            if rid in cached.all_token_ids and (rid in cached.resumed_req_ids or request not in scheduled):
                known[request] = list(cached.all_token_ids[rid])
        begun = [*[new.req_id for new in output.scheduled_new_reqs], *cached.resumed_req_ids]
        self._recent.append(self._pass_of(output, starts, known, set(map(self.number_of, begun))))
        for rid, count in zip(cached.req_ids, cached.num_output_tokens, strict=True):
            self._last.lens[self.number_of(rid)] = self._prompt_lens[self.number_of(rid)] + count
        return self._last

    def _drop(self, rid: str) -> None:
        request = self._numbers.pop(rid, 0)
        self.tables.pop(request, None)
        self.device.states.restart(request)

    def _pass_of(
        self, output: Any, starts: Mapping[int, int], known: Mapping[int, Sequence[int]], admitted: set[int]
    ) -> VllmPass:
        """The pass that an output of the scheduler describes."""
        in_flight = {entry.request: entry for flight in self._queue for entry in flight.entries}
        states, entries, waiting = self.device.states, list[VllmEntry](), set[int]()
        for rid, count in output.num_scheduled_tokens.items():
            request, drafts = self.number_of(rid), tuple(output.scheduled_spec_decode_tokens.get(rid, ()))
            tables = [tuple(table) for table in self.tables[request]]
            start, end = starts[request], starts[request] + count
            columns = states.columns(request, start, end, len(drafts)) if states.groups else Columns()
            entry = VllmEntry(request, start, end, tables, drafts, columns, self._facts.requests.run_of(request))
            before = in_flight.get(request) if request not in admitted else None
            if before is not None and (before.drafts or drafts):
                waiting.add(request)
            else:
                entry = entry.behind(0, self._proposed(entry))
            entries.append(entry)
        copies = [(0, block) for block in getattr(output, "new_block_ids_to_zero", None) or ()]
        moved = getattr(output, "kv_cache_block_copies", None) or ()
        copies += [(copy.src_block_id, copy.dst_block_id) for copy in moved]
        launch, rids = self.last_launch + bool(entries), tuple(output.num_scheduled_tokens)
        return VllmPass(launch, entries, rids=rids, known=known, admitted=admitted, waiting=waiting, copies=copies)

    def _proposed(self, entry: VllmEntry) -> Sequence[int]:
        """The drafts of an entry; with asynchronous scheduling only the runner has them."""
        if PLACEHOLDER not in entry.drafts:
            return entry.drafts
        count = len(entry.drafts)
        return tuple([*self.device.drafts(entry.request), *[UNKNOWN] * count][:count])

    def _result(self, flight: VllmPass) -> ResultFuture:
        def get() -> Any:
            while flight.output is None:
                self._compute(self._queue.pop(0))
            return flight.output

        return ResultFuture(get, lambda: flight.output is not None)

    def synchronize(self, launch: int) -> None:
        """Compute all passes up to a launch, but not the one that is being launched."""
        while len(self._queue) > 1 and self._queue[0].launch <= launch:
            self._compute(self._queue.pop(0))

    def _compute(self, flight: VllmPass) -> None:
        if flight.failed:
            self._fail(flight)
        sampled = self.device.compute(flight)
        flight.output = self._output(flight, sampled)
        if flight.entries:
            self._facts.completed(flight)
        self._verified(flight, sampled)

    def _fail(self, flight: VllmPass) -> None:
        """Loads of a pass have failed: this pass and the later ones read blocks that are not written.

        A request that was admitted again since has other blocks.
        """
        blocks = {block for load in flight.failed for block in load.targets(self.device.groups)}
        for behind in (flight, *self._queue):
            behind.rewind(blocks)
        starts = {self.number_of(load.rid): load.start for load in flight.failed}
        begun = {request for behind in self._queue for request in behind.admitted}
        for entry in flight.entries:
            if entry.run == REWOUND and entry.request not in begun:
                length = starts.get(entry.request, entry.start)
                self._facts.report([seen.Loaded(entry.request, length, entry.tables[0])])

    def _output(self, flight: VllmPass, sampled: Sequence[Sequence[int]]) -> Any:
        rids = list(flight.rids)
        return self.release.make(
            "ModelRunnerOutput",
            req_ids=rids,
            req_id_to_index={rid: index for index, rid in enumerate(rids)},
            sampled_token_ids=sampled,
            logprobs=None,
            prompt_logprobs_dict={},
            pooler_output=[],
            kv_connector_output=self.loads.computed(flight),
        )

    def _verified(self, flight: VllmPass, sampled: Sequence[Sequence[int]]) -> None:
        """Let the entries that wait for the drafts of a pass start behind the accepted ones."""
        rejected = {
            entry.request: len(entry.drafts) - max(0, len(tokens) - 1)
            for entry, tokens in zip(flight.entries, sampled, strict=True)
        }
        for later in self._queue:
            if known := later.waiting.intersection(rejected):
                later.entries = [
                    entry.behind(rejected[entry.request], self._proposed(entry)) if entry.request in known else entry
                    for entry in later.entries
                ]
                later.waiting -= known
                if not later.waiting:
                    self._facts.launched(later)
