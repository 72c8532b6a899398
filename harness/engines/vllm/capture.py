"""Snapshots of a vLLM engine core: facts from a walk over its tables, its free queue and its queues of requests."""

import math
from collections.abc import Callable, Sequence
from functools import partial
from itertools import zip_longest
from typing import Any, NamedTuple

from swarden.harness.engines.vllm.block_copies import HeldBlock
from swarden.harness.engines.vllm.config import BOTH, CHUNKS, LAZY, VllmConfig
from swarden.harness.engines.vllm.core import BuiltCore
from swarden.harness.engines.vllm.device import POOL
from swarden.harness.engines.vllm.moves import Moves
from swarden.harness.engines.vllm.offloading import OffloadingSide, parts_of
from swarden.harness.engines.vllm.passes import VllmEntry, VllmPass
from swarden.harness.engines.vllm.requests import VllmRequest, VllmRequests
from swarden.harness.engines.vllm.router import VllmRouter
from swarden.harness.engines.vllm.runner import Runner
from swarden.invariants.events import BACKUP_KIND, Owner
from swarden.invariants.kinds import Place
from swarden.invariants.limits import Limits
from swarden.invariants.view import (
    ComponentView,
    Counters,
    RecordView,
    RequestView,
    Snapshot,
)

WAITS_FOR_LOAD = "WAITING_FOR_REMOTE_KVS"
QUEUES = ("waiting", "skipped_waiting", "kv_holding_waiting")  # the queues of waiting requests, in any release


class EventSources(NamedTuple):
    """The types of events that are never reported, and the reader of the KV events, if they are published."""

    unreported: frozenset[str]
    router: VllmRouter | None = None


class FindableBlocks:
    """The blocks that a hash finds, for those of the requests that wait, or did at the last walk.

    `find` returns what is there for a hash and a group of layers, 0 for nothing.
    """

    def __init__(self, find: Callable[[Any, int], int], num_groups: int) -> None:
        self._find, self._groups = find, range(num_groups)
        self._waited = set[int]()

    def of(self, requests: VllmRequests, place_of: Callable[[Any], Place]) -> dict[int, tuple[Sequence[int], ...]]:
        """The blocks by request and group; requests that read no cached blocks are left out."""
        waiting = {number for number, request in requests.live.items() if place_of(request.req) == Place.WAITING}
        wanted, self._waited = waiting | self._waited, waiting
        reading = {number: requests.live[number].req for number in sorted(wanted) if number in requests.live}
        return {
            number: tuple([[self._find(one, group) for one in req.block_hashes] for group in self._groups])
            for number, req in reading.items()
            if not req.skip_reading_prefix_cache
        }


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


class LazyCopies:
    """Copies of single blocks that begin also in steps without a pass.

    A wait for them has an end if each that has begun since the last launch copies other blocks, because a pool has a
    limited number of them.  If one copies a block again, they can take turns for ever, and the wait is judged so:
    whether they will stop cannot be told from what has been copied.
    """

    def __init__(self) -> None:
        self._launch, self._begun = 0, frozenset[Owner]()  # the last launch, and the copies that had begun by then
        self._first = dict[int, Owner]()  # the first copy of a block since then

    def note(self, launch: int, copies: Sequence[HeldBlock]) -> bool:
        """Note the blocks in copies now; returns whether a wait has an end: for a load, or for copies of new blocks."""
        if launch != self._launch:
            self._launch, self._begun, self._first = launch, frozenset([copy.owner for copy in copies]), {}
        stores = [copy for copy in copies if copy.owner.kind == BACKUP_KIND]
        has_repeated = False
        for copy in stores:
            if copy.owner not in self._begun:
                has_repeated |= self._first.setdefault(copy.block, copy.owner) != copy.owner
        return len(stores) < len(copies) or (bool(stores) and not has_repeated)


class VllmCapture:
    """Walks one engine core between two steps."""

    def __init__(
        self, config: VllmConfig, built: BuiltCore, runner: Runner, moves: Moves, events: EventSources
    ) -> None:
        self._config, self._built, self._runner, self._moves = config, built, runner, moves
        self._events, self._loads_within_a_step, self._lazy_copies = events, LoadsWithinAStep(), LazyCopies()
        cache_key, host_key = map(runner.release.code, ("make_block_hash_with_group_id", "make_offload_key"))
        self._findable = FindableBlocks(partial(self._cached, cache_key), len(config.groups))
        has_blocks_as_chunks = config.cpu_chunks and config.chunk_blocks == 1 and config.offloader == CHUNKS
        self._loadable = (
            FindableBlocks(partial(self._offloaded, host_key), len(config.groups)) if has_blocks_as_chunks else None
        )
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
            draft_len=config.draft_len or 0,
            draft_row_len=config.lookahead_len,
            shares_prefixes=config.prefix_caching and config.role == BOTH,
        )

    def capture(self, step: int, requests: VllmRequests, *, is_paused: bool) -> Snapshot:
        in_flight = self._runner.in_flight
        pools, router = self._moves.pools, self._events.router
        has_loaded = self._loads_within_a_step.note(self._built.scheduler)
        copies, is_lazy = self._moves.copies, self._config.offloader == LAZY
        loads = self._runner.loads
        has_ended = isinstance(loads, OffloadingSide) and loads.has_unreported_ends
        is_copying = self._lazy_copies.note(self._runner.last_launch, copies) if is_lazy else copies
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
            cached_blocks=None if router is None else router.cached_blocks(),
            cached_columns=self._findable.of(requests, self._place),
            offloaded_columns=None if self._loadable is None else self._loadable.of(requests, self._place),
            is_loading=bool(has_loaded or is_copying or (not is_lazy and (loads or has_ended))),
            unreported=self._events.unreported,
        )

    def _cached(self, key_of: Callable[[Any, int], Any], block_hash: Any, group: int) -> int:
        """The block in the pool's map of hashes."""
        block = self._built.pool.cached_block_hash_to_block.get_one_block(key_of(block_hash, group))
        return 0 if block is None else int(block.block_id)

    def _offloaded(self, key_of: Callable[[Any, int], Any], block_hash: Any, group: int) -> int:
        """Whether a chunk of one block is in CPU memory, and can be loaded."""
        [offloading, *_] = parts_of(self._built.scheduler.connector)
        manager = offloading.connector_scheduler.manager
        of_memory = getattr(manager, "primary_tier", manager)  # a look-up in both tiers begins a copy from the second
        return int(of_memory.lookup(key_of(block_hash, group), None).name == "HIT")

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
            place=Place.LINKED if request.is_linked else self._place(req),
            namespace=request.namespace,
            prompt_len=req.num_prompt_tokens,
            num_outputs=req.num_output_tokens,
            max_new_tokens=0 if request.is_cut else req.max_tokens,
            priority=-req.priority,
            session=request.session,
        )

    def _place(self, req: Any) -> Place:
        scheduler = self._built.scheduler
        if any(req is one for one in scheduler.running):
            return Place.RUNNING
        waiting = [getattr(scheduler, name) for name in QUEUES if hasattr(scheduler, name)]
        if not any(req is one for queue in waiting for one in queue):
            return Place.LOST
        has_blocks = any(table.req_to_blocks.get(req.request_id) for table in self._built.tables)
        return Place.LOADING if has_blocks else Place.WAITING

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
