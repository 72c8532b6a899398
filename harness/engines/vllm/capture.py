"""Snapshots of a vLLM engine core: facts from a walk over its tables, its free queue and its queues of requests."""

import math
from collections.abc import Callable, Sequence
from functools import partial
from itertools import zip_longest
from typing import Any

from swarden.harness.engines.vllm.config import VllmConfig
from swarden.harness.engines.vllm.core import BuiltCore
from swarden.harness.engines.vllm.layers import POOL, WAITS_FOR_LOAD
from swarden.harness.engines.vllm.moves import Moves
from swarden.harness.engines.vllm.passes import VllmEntry, VllmPass
from swarden.harness.engines.vllm.requests import FindableBlocks, VllmRequest, VllmRequests
from swarden.harness.engines.vllm.runner import Runner
from swarden.invariants.kinds import Place
from swarden.invariants.limits import Ends, Limits, Replays
from swarden.invariants.view import ComponentView, Counters, RecordView, RequestView, Snapshot


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


class VllmCapture:
    """Walks one engine core between two steps."""

    def __init__(
        self, config: VllmConfig, built: BuiltCore, runner: Runner, moves: Moves, unreported: frozenset[str]
    ) -> None:
        self._config, self._built, self._runner, self._moves = config, built, runner, moves
        self._unreported, self._loads_within_a_step = unreported, LoadsWithinAStep()
        cache_key = runner.release.code("make_block_hash_with_group_id")
        self._findable = FindableBlocks(partial(self._cached, cache_key), len(config.groups))
        self._groups = config.groups
        self.components = tuple([ComponentView(POOL, *group) for group in self._groups])
        self._limits = Limits(
            config.block_size,
            config.max_running_requests,
            config.max_context_len,
            config.chunk_len,
            most_launches=config.most_launches,
            reuses_in_launch_order=not getattr(built.scheduler, "defer_block_free", False),
            mixes_batches=True,
            shares_prefixes=config.prefix_caching,
            replays=self._replays if config.prefix_caching else None,
        )._replace(**{name: limit for part in config.parts for name, limit in part.limits(config).items()})

    def capture(self, step: int, requests: VllmRequests, *, is_paused: bool) -> Snapshot:
        in_flight, pools = self._runner.in_flight, self._moves.pools
        has_loaded = self._loads_within_a_step.note(self._built.scheduler)
        return Snapshot(
            step,
            self._limits,
            self.components,
            tuple([pool.view for pool in pools]),
            records=self._records(requests, in_flight),
            requests=tuple([self._request(request) for request in requests.live.values()]),
            counters=Counters({pool.view.name: pool.num_free for pool in pools}, {}, {}, 0),
            launches=tuple(
                [
                    one.view(
                        self._blocks,
                        partial(requests.counts, one),
                        sessions=[requests.sessions.get(entry.request, 0) for entry in one.entries],
                        are_delivered=True,
                    )._replace(rewound=one.rewound)
                    for one in in_flight
                ]
            ),
            is_paused=is_paused,
            cached_columns=self._findable.of(requests, self._built.place_of),
            is_loading=has_loaded or self._runner.loads.is_awaited,
            unreported=self._unreported,
        )

    def _cached(self, key_of: Callable[[Any, int], Any], block_hash: Any, group: int) -> int:
        """The block in the pool's map of hashes."""
        block = self._built.pool.cached_block_hash_to_block.get_one_block(key_of(block_hash, group))
        return 0 if block is None else int(block.block_id)

    @property
    def _replays(self) -> Replays:
        """The prefixes that the release promises: `replay_boundaries` (0.33.0, kv_cache_coordinator.py:65).

        Others are kept with retention_interval None alone: `reachable_block_mask`.
        """
        is_sparse = self._config.retention_interval is not None or self._config.states.is_on
        peek_len = self._block if self._config.drafts.lookahead_len else 0  # drop_eagle_block
        return Replays(Ends.PROMPT if is_sparse else Ends.PAGES, peek_len)

    @property
    def _block(self) -> int:
        """The tokens of whole blocks of all groups."""
        return math.lcm(*[group.block_len for group in self._groups])

    def _records(self, requests: VllmRequests, in_flight: Sequence[VllmPass]) -> tuple[RecordView, ...]:
        tables: dict[str, list[Sequence[Any]]] = {}
        for group, table in enumerate(self._built.tables):
            for rid, blocks in table.req_to_blocks.items():
                if blocks:
                    tables.setdefault(rid, [()] * len(self.components))[group] = blocks
        return tuple([self._record(rid, groups, requests, in_flight) for rid, groups in tables.items()])

    def _record(
        self, rid: str, groups: Sequence[Sequence[Any]], requests: VllmRequests, in_flight: Sequence[VllmPass]
    ) -> RecordView:
        """A record. The release counts the tokens of a pass as computed when it schedules the pass, and those of a
        load when the load begins.
        """
        number, req = self._built.number_of(rid), self._built.scheduler.requests.get(rid)
        units = [[0 if block.is_null else block.block_id for block in blocks] for blocks in groups]
        sizes = list(zip(self._groups, units, strict=True))
        allocated = min(len(blocks) * group.block_len for group, blocks in sizes if not group.has_states)
        for group, blocks in sizes:
            if group.has_states:  # its table may be shorter, or have blocks for drafts behind the state
                count = -(-allocated // group.block_len)
                blocks[:] = [*blocks, *[0] * count][:count]
        load = self._runner.loads.loading.get(number)
        launched = load.end if load is not None else req.num_computed_tokens if req is not None else 0
        entries = [
            entry
            for one in in_flight
            for entry in one.entries
            if requests.counts(one, entry) and entry.request == number
        ]
        committed = min([entry.start for entry in entries], default=launched)
        launched = max([entry.end - len(entry.drafts) for entry in entries], default=launched)
        of_whole = next(blocks for group, blocks in zip(self._groups, groups, strict=True) if group.window is None)
        hashed = next((index for index, block in enumerate(of_whole) if block.block_hash is None), len(of_whole))
        shared = min(hashed * self._config.block_size, committed) // self._block * self._block
        is_running = req is not None and any(req is one for one in self._built.scheduler.running)
        row = number if is_running and number in self._runner.tables else 0
        return RecordView(
            owner=requests.owner(number),
            row=row,
            protected_len=shared,
            committed_len=committed,
            launched_len=launched,
            allocated_len=allocated,
            frontiers=tuple(
                [0 if group.has_states else group.block_len * _leading_nulls(blocks) for group, blocks in sizes]
            ),
            units=tuple(units),
            table=_without_given_up(self._runner.tables[number][0], units[0]) if row else (),
            receipt=0,
            node=0,
        )

    def _request(self, request: VllmRequest) -> RequestView:
        req = request.req
        if request.queued is not None:
            new = request.queued
            waiting = (request.id, Place.WAITING, request.namespace, len(new.tokens), 0, new.max_new_tokens)
            return RequestView(*waiting, priority=new.priority, session=request.session)
        return RequestView(
            id=request.id,
            place=Place.LINKED if request.is_linked else self._built.place_of(req),
            namespace=request.namespace,
            prompt_len=req.num_prompt_tokens,
            num_outputs=req.num_output_tokens,
            max_new_tokens=0 if request.is_cut else req.max_tokens,
            priority=-req.priority,
            session=request.session,
        )

    def _blocks(self, entry: VllmEntry) -> tuple[Sequence[int], ...]:
        return tuple([self._blocks_in_use(entry, index) for index in range(len(entry.tables))])

    def _blocks_in_use(self, entry: VllmEntry, index: int) -> Sequence[int]:
        """The blocks that an entry reads or writes in a group."""
        window, size, has_states = self._groups[index]
        if has_states:
            source = entry.block(index, entry.columns.source)
            return (*filter(None, [source]), *self._runner.device.states.blocks(entry, index))
        first = 0 if window is None else max(0, entry.start + 1 - window) // size
        return tuple(filter(None, entry.tables[index][first : -(-entry.end // size)]))


def _without_given_up(table: Sequence[int], units: Sequence[int]) -> tuple[int, ...]:
    """The row of a request; the release leaves blocks in it that are below the window, and reads none of them."""
    return tuple([block if unit else 0 for block, unit in zip_longest(table, units, fillvalue=-1)])


def _leading_nulls(units: Sequence[int]) -> int:
    return next((index for index, unit in enumerate(units) if unit), len(units))
