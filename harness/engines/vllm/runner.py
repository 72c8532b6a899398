"""A stand-in for the model runner: it knows what the scheduler's outputs say and nothing else, and stores one tag per
slot.

A pass is computed when its result is asked for, which is as late as possible; passes are computed in launch order.
"""

from array import array
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import invariants.events as seen
from harness.core.faults import FaultPlan
from harness.engines.vllm.boot import Release
from harness.engines.vllm.config import VOCABULARY, VllmConfig
from harness.engines.vllm.connector import Load
from harness.engines.vllm.loads import LateLoads
from harness.engines.vllm.memory import Memory
from harness.engines.vllm.passes import Columns, Entry, Pass
from harness.engines.vllm.speculation import Proposer
from harness.engines.vllm.states import States
from invariants.reference import namespace_tag, next_tag, sampled_token

POOL = "blocks"
UNKNOWN = VOCABULARY  # stands for a token that the runner has not been told


class Result(NamedTuple):
    """A future, which is done when its result has been asked for."""

    get: Callable[[], Any]
    done: Callable[[], bool]

    def result(self, timeout: float | None = None) -> Any:
        return self.get()


class Hooks(NamedTuple):
    """What a runner calls: `notice` with each event, the others with each pass that computes.

    `launched` is called with the scheduler's output, too.
    """

    notice: Callable[[NamedTuple], None]
    launched: Callable[[Pass, Any], None]
    completed: Callable[[Pass], None]


class Runner:
    """The executor of an engine core, with the block tables and the tokens that its scheduler has sent.

    `namespaces` are those of the requests.
    """

    def __init__(self, release: Release, config: VllmConfig, faults: FaultPlan, hooks: Hooks) -> None:
        self.release, self._config, self._hooks = release, config, hooks
        self.tables: dict[int, list[list[int]]] = {}
        self.namespaces: dict[int, int] = {}
        self._tokens: dict[int, list[int]] = {}
        self._memory = Memory(config.num_blocks, config.groups)
        self.states = States(config, self._memory)
        self.proposer = Proposer(config.draft_len or 0, self.windows)
        self.loads = LateLoads(faults, config.groups, self._load)
        self._last = Pass(0, (), {}, ())
        self._queue: list[Pass] = []  # not computed yet

    @property
    def windows(self) -> tuple[int | None, ...]:
        """The window of each group of layers; None for full attention."""
        return tuple([group.window for group in self._config.groups])

    @property
    def last_launch(self) -> int:
        return self._last.launch

    @property
    def in_flight(self) -> list[Pass]:
        return [one for one in self._queue if one.entries]

    # The methods of an executor, as the engine core calls them.

    def execute_model(self, output: Any, non_block: bool = False) -> Any:
        one = self._received(output)
        self._queue.append(one)
        return self._result(one) if not one.entries else Result(lambda: None, lambda: True)

    def sample_tokens(self, grammar_output: Any, non_block: bool = False) -> Any:
        result = self._result(self._queue[-1])
        return result if non_block else result.result()

    def take_draft_token_ids(self) -> Any:
        """The drafts after each output of the last pass, as many right ones as the proposer says."""
        results = zip(self._last.output.req_ids, self._last.output.sampled_token_ids, strict=True)
        sampled = [(rid, tokens) for rid, tokens in results if tokens]
        drafts = [self.proposer.drafts(self.namespaces[int(rid)], self._tokens[int(rid)]) for rid, _ in sampled]
        return self.release.part("DraftTokenIds")([rid for rid, _ in sampled], drafts)

    def collective_rpc(self, *args: Any, **kwargs: Any) -> None: ...

    def reset_mm_cache(self) -> None: ...

    def reset_encoder_cache(self) -> None: ...

    def _received(self, output: Any) -> Pass:
        """Update the tables as the scheduler's output says, and launch its pass."""
        for name in ("finished_req_ids", *(["preempted_req_ids"] if self._config.second_runner else [])):
            for rid in getattr(output, name) or ():
                self.tables.pop(int(rid), None)
                self.states.restart(int(rid))
        starts: dict[int, int] = {}
        scheduled = {entry.request for entry in self._last.entries}
        known: dict[int, Sequence[int]] = {}
        for new in output.scheduled_new_reqs:
            request = int(new.req_id)
            starts[request] = new.num_computed_tokens
            self.tables[request] = [list(group) for group in new.block_ids]
            self.states.restart(request)
            known[request] = list(getattr(new, "prefill_token_ids", None) or new.prompt_token_ids)
        cached = output.scheduled_cached_reqs
        for rid, start, blocks in zip(cached.req_ids, cached.num_computed_tokens, cached.new_block_ids, strict=True):
            request = int(rid)
            starts[request] = start
            if rid in cached.resumed_req_ids:
                self.tables[request] = [list(group) for group in blocks]
                self.states.restart(request)
            elif blocks is not None:
                for table, new_blocks in zip(self.tables[request], blocks, strict=True):
                    table += new_blocks
            if rid in cached.all_token_ids and (rid in cached.resumed_req_ids or request not in scheduled):
                known[request] = list(cached.all_token_ids[rid])
        entries = []
        for rid, count in output.num_scheduled_tokens.items():
            request, drafts = int(rid), tuple(output.scheduled_spec_decode_tokens.get(rid, ()))
            tables = [tuple(table) for table in self.tables[request]]
            start, end = starts[request], starts[request] + count
            columns = self.states.columns(request, start, end, len(drafts)) if self.states.groups else Columns()
            entries.append(Entry(request, start, end, tables, drafts, columns))
        zeroed = getattr(output, "new_block_ids_to_zero", None) or ()
        one = self._last = Pass(self.last_launch + bool(entries), entries, known, zeroed)
        for load in getattr(output.kv_connector_metadata, "loads", ()):
            if load.is_late:
                self.loads.begin(load)
            else:
                one.loads.append(load)
        if entries:
            self._hooks.launched(one, output)
        return one

    def _result(self, one: Pass) -> Result:
        def get() -> Any:
            while one.output is None:
                self._compute(self._queue.pop(0))
            return one.output

        return Result(get, lambda: one.output is not None)

    # What the device does.

    def _compute(self, one: Pass) -> None:
        self._tokens.update({request: list(tokens) for request, tokens in one.known.items()})
        for block in one.zeroed:
            self._memory.fill(block, 0)
        for load in one.loads:
            self._load(load)
        self.states.move(one.entries)
        for entry in one.entries:
            self._write(entry)
        before = self.states.read(one.entries)
        states = [
            {
                group: self._write_states(entry, group, before.get((entry.request, group)))
                for group in self.states.groups
            }
            for entry in one.entries
        ]
        sampled = [self._read(one.launch, entry, tags) for entry, tags in zip(one.entries, states, strict=True)]
        self.states.accept(one.entries, [max(0, len(tokens) - 1) for tokens in sampled])
        rids = [str(entry.request) for entry in one.entries]
        one.output = self.release.make(
            "ModelRunnerOutput",
            req_ids=rids,
            req_id_to_index={rid: index for index, rid in enumerate(rids)},
            sampled_token_ids=sampled,
            logprobs=None,
            prompt_logprobs_dict={},
            pooler_output=[],
            kv_connector_output=self._ended_loads(),
        )
        if one.entries:
            self._hooks.completed(one)

    def _ended_loads(self) -> Any:
        """What the connector of the worker tells the scheduler after a pass; None if no load has ended."""
        ended = self.loads.end_pass()
        if ended is None:
            return None
        by_request = self.release.has("failed_requests")
        failed = {"failed_recving": ended.failed} if by_request else {"invalid_block_ids": ended.unwritten}
        return self.release.make("KVConnectorOutput", finished_recving=ended.requests, **failed)

    def _load(self, load: Load) -> None:
        tag = namespace_tag(self.namespaces[load.request])
        for position, token in enumerate(load.tokens):
            tag = next_tag(tag, token)
            for group, table in enumerate(load.tables if position >= load.start else ()):
                self._memory.put(group, table, position, tag)

    def _write(self, entry: Entry) -> None:
        """Write the KV of an entry in each group, computed from that of its prefix in the first one."""
        request, start, _, tables, *_ = entry
        before = self._memory.get(0, tables[0], start - 1) if start else namespace_tag(self.namespaces[request])
        for position, tag in enumerate(self._chain(entry, before), start):
            for group, table in enumerate(tables):
                if group not in self.states.groups:
                    self._memory.put(group, table, position, tag)

    def _write_states(self, entry: Entry, group: int, before: int | None) -> "array[int]":
        """Write the states of an entry, computed from the one before it.  Returns the tags of all, with that one."""
        read = [] if before is None else [before]
        tags = self._chain(entry, *(read or [namespace_tag(self.namespaces[entry.request])]))
        self.states.write(entry, group, tags)
        return array("q", [*read, *tags])

    def _chain(self, entry: Entry, tag: int) -> list[int]:
        """The tags of the positions of an entry after this tag; after an unwritten slot they are of no prefix."""
        tokens = [*self._tokens[entry.request], *entry.drafts]
        tags = []
        for position in range(entry.start, entry.end):
            tag = next_tag(tag, tokens[position] if position < len(tokens) else UNKNOWN)
            tags.append(tag)
        return tags

    def _read(self, launch: int, entry: Entry, states: Mapping[int, "array[int]"]) -> list[int]:
        """Read what an entry sees in each group; `states` are the tags of the groups with states.

        Returns the sampled tokens, or none after a part of the tokens.
        """
        request, start, end, tables, drafts, _ = entry
        groups = []
        for group, window in enumerate(self.windows):
            first = 0 if window is None else max(0, start + 1 - window)
            if group in states:
                tags = states[group]
            else:
                tags = array("q", [self._memory.get(group, tables[group], position) for position in range(first, end)])
            self._hooks.notice(seen.Read(launch, request, POOL, first, tags, group))
            groups.append((window, first, tags))
        tokens = self._tokens[request]
        if end < len(tokens):
            return []
        sampled = []
        for last in range(end - len(drafts), end + 1):
            sums = [sum(tags[max(0, last - (window or last)) - first : last - first]) for window, first, tags in groups]
            sampled.append(sampled_token(sums, VOCABULARY))
        accepted = next((index for index, draft in enumerate(drafts) if draft != sampled[index]), len(drafts))
        if drafts:
            self._hooks.notice(seen.Verified(launch, request, accepted, tuple(sampled)))
        tokens += sampled[: accepted + 1]
        return sampled[: accepted + 1]
