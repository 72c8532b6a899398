"""Snapshots of a vLLM engine core: facts from a walk over its tables, its free queue and its queues of requests."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from itertools import compress, count, takewhile, zip_longest
from typing import Any, NamedTuple

import swarden.invariants.events as seen
from swarden.harness.engines.vllm.config import VllmConfig
from swarden.harness.engines.vllm.core import BuiltCore
from swarden.harness.engines.vllm.layers import POOL, WAITS_FOR_LOAD
from swarden.harness.engines.vllm.moves import Moves
from swarden.harness.engines.vllm.passes import VllmEntry, VllmPass
from swarden.harness.engines.vllm.requests import FindableBlocks, VllmRequest, VllmRequests
from swarden.harness.engines.vllm.runner import Runner
from swarden.harness.kit import tags
from swarden.harness.kit.adapted import Adapted
from swarden.invariants.events import Owner
from swarden.invariants.kinds import Place
from swarden.invariants.limits import Limits
from swarden.invariants.view import ComponentView, PoolView, RecordView, RequestView, Snapshot


class LoadsWithinAStep:
    """Loads that begin and end between two walks: no walk sees them under way, and their requests wait for a step more.

    For each request the first such load counts; the next one counts only after the request has run.
    """

    def __init__(self) -> None:
        self._known = set[str]()  # requests that have been loading, and have not run since

    def note(self, scheduler: Any) -> bool:
        """Note the loads of now; returns whether the scheduler has noted the end of one that counts since the last."""
        requests, running = scheduler.requests, {req.request_id for req in scheduler.running}
        has_ended = not self._known.issuperset(scheduler.finished_recving_kv_req_ids & requests.keys())
        loading = {rid for rid, req in requests.items() if req.status.name == WAITS_FOR_LOAD}
        self._known = loading | (self._known & requests.keys()) - running
        return has_ended


class VllmFacts(Adapted):
    """Walks one engine core between two steps, from `walk` on."""

    vocabulary = tags.VOCABULARY
    requests: VllmRequests

    def walk(self, config: VllmConfig, built: BuiltCore, runner: Runner, moves: Moves) -> None:
        self.built, self.runner, self.moves = built, runner, moves
        self._groups, self._loads_within_a_step = config.groups, LoadsWithinAStep()
        self._block_len = math.lcm(*[group.block_len for group in self._groups])  # of whole blocks of all groups
        self._stateful = [index for index, group in enumerate(self._groups) if group.has_states]
        self._whole = next(index for index, group in enumerate(self._groups) if group.window is None)
        cache_key = lru_cache(1 << 14)(runner.release.code("make_block_hash_with_group_id"))
        self._findable = FindableBlocks(partial(self._cached, cache_key), len(self._groups))
        self.components = tuple([ComponentView(POOL, *group) for group in self._groups])
        is_deferred = getattr(built.scheduler, "defer_block_free", False)
        self.limits = Limits(**config.limits, reuses_in_launch_order=not is_deferred)
        peek_len = getattr(built.scheduler, "num_hash_lookahead_tokens", 0)  # such hashes need no block to be dropped
        if self.limits.replays is not None and peek_len:
            self.limits = self.limits._replace(replays=self.limits.replays._replace(peek_len=peek_len, drop_len=0))

    @property
    def in_flight(self) -> Sequence[VllmPass]:
        return self.runner.in_flight

    def snapshot(self) -> Snapshot:
        self._pools, self.places = self.moves.pools, self.built.places()
        return super().snapshot()

    def further(self) -> Mapping[str, Any]:
        has_loaded = self._loads_within_a_step.note(self.built.scheduler)
        columns = self._findable.of(self.requests, self.places)
        return {"cached_columns": columns, "is_loading": has_loaded or self.runner.loads.is_awaited}

    def session_of(self, entry: VllmEntry) -> int:
        return self.requests.sessions.get(entry.request, 0)

    def audit(self) -> None:
        self.moves.blocks.audit()

    def settle(self) -> Iterator[NamedTuple]:
        return self.moves.settle()

    def pools(self) -> Sequence[PoolView]:
        return [view for view, _ in self._pools]

    def counted(self) -> Mapping[str, int]:
        return {view.name: num_free for view, num_free in self._pools}

    def number_of(self, rid: str) -> int:
        return self.requests.number_of(rid)

    def launched(self, flight: VllmPass) -> None:
        self.report(self._launched(flight))

    def completed(self, flight: VllmPass) -> None:
        self.report(flight.completed(self.is_used))

    def _launched(self, flight: VllmPass) -> Iterator[NamedTuple]:
        """The admissions, the launch, and what the pass is going to write."""
        device = self.runner.device
        for entry in flight.entries:
            if entry.request in flight.admitted:
                yield seen.Admitted(entry.request, entry.start, entry.end, (), ())
        yield flight.launched()
        for entry in flight.entries:
            request, start, end, tables, drafts, *_ = entry
            if drafts:
                yield seen.Proposed(flight.launch, request, drafts)
            new = start + device.repeated_len(flight, entry) if self.runner.loads.writes_blocks else start
            for component, (table, group) in enumerate(zip(tables, self._groups, strict=True)):
                if group.has_states:
                    pages = device.states.blocks(entry, component)
                    yield seen.Written(flight.launch, request, POOL, start, end, pages, component)
                elif new < end:
                    pages = tuple(filter(None, table[new // group.block_len : -(-end // group.block_len)]))
                    yield seen.Written(flight.launch, request, POOL, new, end, pages, component)

    def records(self) -> Sequence[RecordView]:
        tables: dict[tuple[str, Owner], list[Sequence[int]]] = {}
        for (group, rid, owner), blocks in self.moves.blocks.tables.items():
            tables.setdefault((rid, owner), [()] * len(self._groups))[group] = blocks
        return [self._record(rid, owner, units) for (rid, owner), units in tables.items()]

    def _record(self, rid: str, owner: Owner, units: list[Sequence[int]]) -> RecordView:
        """A record. The release counts the tokens of a pass as computed when it schedules the pass, and those of a
        load when the load begins.
        """
        number, req, groups = self.built.number_of(rid), self.built.scheduler.requests.get(rid), self._groups
        lens = [
            len(blocks) * group.block_len for blocks, group in zip(units, groups, strict=True) if not group.has_states
        ]
        allocated = min(lens)
        hashed = len([*takewhile(self.moves.blocks.hashed.__contains__, units[self._whole])])
        for index in self._stateful:  # its table may be shorter, or have blocks for drafts behind the state
            count = -(-allocated // groups[index].block_len)
            units[index] = [*units[index], *[0] * count][:count]
        load = self.runner.loads.loading.get(number)
        computed = load.end if load is not None else req.num_computed_tokens if req is not None else 0
        protected, committed, launched = self.lens(number, computed, hashed * self.limits.page_size)
        row = number if self.places.get(id(req)) == Place.RUNNING and number in self.runner.tables else 0
        nulls = [
            0 if group.has_states else _leading_nulls(one) * group.block_len
            for group, one in zip(groups, units, strict=True)
        ]
        return RecordView(
            owner,
            row,
            protected // self._block_len * self._block_len,
            committed,
            launched,
            allocated,
            tuple(nulls),
            tuple(units),
            _without_given_up(self.runner.tables[number][0], units[0]) if row else (),
        )

    def request_views(self) -> Sequence[RequestView]:
        return [self._request(request) for request in self.requests.live.values()]

    def _request(self, request: VllmRequest) -> RequestView:
        req = request.req
        if request.queued is not None:
            new = request.queued
            waiting = (request.id, Place.WAITING, request.namespace, len(new.tokens), 0, new.max_new_tokens)
            return RequestView(*waiting, priority=new.priority, session=request.session)
        return RequestView(
            id=request.id,
            place=Place.LINKED if request.is_linked else self.places.get(id(req), Place.LOST),
            namespace=request.namespace,
            prompt_len=req.num_prompt_tokens,
            num_outputs=req.num_output_tokens,
            max_new_tokens=0 if request.is_cut else req.max_tokens,
            priority=-req.priority,
            session=request.session,
        )

    def units_in_use(self, entry: Any) -> tuple[Sequence[int], ...]:
        return tuple([self._blocks_in_use(entry, index) for index in range(len(entry.tables))])

    def _blocks_in_use(self, entry: VllmEntry, index: int) -> Sequence[int]:
        """The blocks that an entry reads or writes in a group."""
        window, size, has_states = self._groups[index]
        if has_states:
            source = entry.block(index, entry.columns.source)
            return (*filter(None, [source]), *self.runner.device.states.blocks(entry, index))
        first = 0 if window is None else max(0, entry.start + 1 - window) // size
        return tuple(filter(None, entry.tables[index][first : -(-entry.end // size)]))

    def _cached(self, key_of: Callable[[Any, int], Any], hashes: Sequence[Any], group: int) -> Sequence[int]:
        """The blocks in the pool's map of hashes."""
        find = self.built.pool.cached_block_hash_to_block.get_one_block
        found = [find(key_of(one, group)) for one in hashes]
        return [0 if block is None else block.block_id for block in found]


def _without_given_up(table: Sequence[int], units: Sequence[int]) -> tuple[int, ...]:
    """The row of a request; the release leaves blocks in it that are below the window, and reads none of them."""
    if 0 not in units and len(table) >= len(units):
        return tuple(table)
    return tuple([block if unit else 0 for block, unit in zip_longest(table, units, fillvalue=-1)])


def _leading_nulls(units: Sequence[int]) -> int:
    return 0 if not units or units[0] else next(compress(count(), units), len(units))
