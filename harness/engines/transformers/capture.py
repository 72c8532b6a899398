"""Snapshots of a batch processor: facts from a walk over its block tables, ledgers, sectors and queues of requests."""

from collections.abc import Mapping, Sequence
from typing import Any

from swarden.harness.engines.transformers.config import TransformersConfig
from swarden.harness.engines.transformers.core import Core, number_of
from swarden.harness.engines.transformers.passes import Entry
from swarden.harness.engines.transformers.pools import GroupFacts, SectorPools
from swarden.harness.engines.transformers.requests import TransformersRequests
from swarden.harness.kit.passes import Pass
from swarden.invariants.events import REQUEST_KIND, SWAP_KIND, Owner
from swarden.invariants.limits import Limits
from swarden.invariants.view import ComponentView, Counters, PoolView, RecordView, Snapshot


class TransformersCapture:
    """Walks one batch processor between two steps; `pools` are those of the device, and those of the host if any."""

    def __init__(self, config: TransformersConfig, core: Core, requests: TransformersRequests, notice: Any) -> None:
        self._config, self._core, self._requests = config, core, requests
        names = [allocator.layer_type.partition("_")[0] for allocator in core.allocators]
        self.pools = [SectorPools(core.cache.pool, "", names, self._device_facts, notice)]
        if core.offloading._cpu_pool is not None:
            self.pools.append(SectorPools(core.offloading._cpu_pool, "host ", names, self._host_facts, notice))
            self.pools[-1].owner = Owner(SWAP_KIND)
        self.components = tuple(
            [
                ComponentView(name, window, config.page_size, is_ring=window is not None)
                for name, window in zip(names, config.windows, strict=True)
            ]
        )
        self._limits = Limits(
            config.page_size,
            config.max_running_requests,
            config.max_context_len,
            config.chunk_len,
            most_launches=2 if config.asynchronous else 1,
            reuses_in_launch_order=True,
            mixes_batches=True,
            shares_prefixes=config.shares_prefixes,
        )

    def capture(self, step: int, in_flight: Sequence[Pass[Entry]], unreported: frozenset[str]) -> Snapshot:
        counted: dict[str, int] = {}
        views: list[PoolView] = []
        for pools in self.pools:
            counted |= pools.counted()
            views += pools.views()
        return Snapshot(
            step,
            self._limits,
            self.components,
            tuple(views),
            records=self._records(in_flight),
            requests=self._requests.views(),
            counters=Counters(counted, {}, {}, 0),
            launches=tuple([flight.view(self._units_of, self._requests.counts) for flight in in_flight]),
            unreported=unreported,
        )

    def tables(self, rid: str) -> tuple[tuple[int, ...], ...]:
        """The units in the tables of a request, by group."""
        device = self.pools[0]
        return tuple(
            [
                tuple(device.units(group, allocator.block_table.get(rid, ())))
                for group, allocator in enumerate(self._core.allocators)
            ]
        )

    def units_from(self, group: int, table: Sequence[int], start: int, end: int) -> tuple[int, ...]:
        """The units of a table that have the slots of positions [start, end)."""
        component = self.components[group]
        if component.is_ring and component.window is not None:
            start = max(start, end - component.window)
        indices = dict.fromkeys(component.page_index(position) for position in range(start, end))
        return tuple([table[index] for index in indices if index < len(table)])

    def _units_of(self, entry: Entry) -> tuple[Sequence[int], ...]:
        return tuple([self.units_from(group, table, 0, entry.end) for group, table in enumerate(entry.tables)])

    def _records(self, in_flight: Sequence[Pass[Entry]]) -> tuple[RecordView, ...]:
        rids = dict.fromkeys(rid for allocator in self._core.allocators for rid in allocator.block_table)
        return tuple([self._record(rid, in_flight) for rid in rids])

    def _record(self, rid: str, in_flight: Sequence[Pass[Entry]]) -> RecordView:
        number, tables, size = number_of(rid), self.tables(rid), self._config.page_size
        state = self._core.scheduler.active_requests.get(rid)
        launched = 0 if state is None else state.position_offset
        starts = [
            entry.start
            for flight in in_flight
            for entry in flight.entries
            if entry.request == number and self._requests.counts(entry)
        ]
        committed = min(starts, default=launched)
        whole = [group for group, component in enumerate(self.components) if not component.is_ring]
        lens = [len(tables[group]) * size for group in whole]
        if not lens:
            held, window = len(tables[0]) * size, self.components[0].window or 0
            lens = [max(held, launched) if held >= window else held]
        shared = min([self.pools[0].shared_len(group, tables[group]) * size for group in whole], default=0)
        return RecordView(
            owner=Owner(REQUEST_KIND, number),
            row=0,
            protected_len=min(shared, committed // size * size),
            committed_len=committed,
            launched_len=launched,
            allocated_len=min(lens),
            frontiers=(0,) * len(tables),
            units=tables,
            table=(),
            receipt=0,
            node=0,
        )

    def _device_facts(self, group: int) -> GroupFacts:
        allocator, holders = self._core.allocators[group], dict[int, list[Owner]]()
        for rid, blocks in allocator.block_table.items():
            for block in blocks:
                holders.setdefault(block, []).append(Owner(REQUEST_KIND, number_of(rid)))
        ledger = allocator.ledger
        return GroupFacts(holders, ledger.shared_ref_counts, tuple(ledger.cached_blocks), ledger.block_to_hash)

    def _host_facts(self, group: int) -> GroupFacts:
        holders: dict[int, list[Owner]] = {}
        name = list(self._core.cache.cache_allocators)[group]
        copies: Mapping[str, Mapping[str, Sequence[int]]] = self._core.offloading._request_id_to_cpu_blocks
        for rid, blocks in copies.items():
            for block in blocks.get(name, ()):
                holders.setdefault(block, []).append(Owner(SWAP_KIND, number_of(rid)))
        return GroupFacts(holders)
