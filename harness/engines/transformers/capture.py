"""Snapshots of a batch processor: facts from a walk over its block tables, ledgers, sectors and queues of requests."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from swarden.harness.engines.transformers.config import TransformersConfig
from swarden.harness.engines.transformers.core import Core, number_of
from swarden.harness.engines.transformers.pools import GroupFacts, SectorPools
from swarden.harness.engines.transformers.requests import TransformersRequests
from swarden.harness.kit.adapted import Adapted
from swarden.harness.kit.owners import Worker
from swarden.harness.kit.passes import TableEntry
from swarden.invariants.events import REQUEST_KIND, SWAP_KIND, Owner
from swarden.invariants.limits import Limits
from swarden.invariants.view import ComponentView, PoolView, RecordView


class TransformersFacts(Adapted):
    """Walks one batch processor between two steps; its memories are that of the device, and that of the host if any."""

    core: Core
    requests: TransformersRequests

    def attach(self, config: TransformersConfig, core: Core) -> None:
        self.core, self.worker = core, Worker(self.report)
        names = [allocator.layer_type.partition("_")[0] for allocator in core.allocators]
        self.memories = [SectorPools(core.cache.pool, "", names, self._device_facts, self.worker)]
        if (host := core.offloading._cpu_pool) is not None:
            swapping = Worker(self.report, Owner(SWAP_KIND))
            self.memories.append(SectorPools(host, "host ", names, self._host_facts, swapping))
        self.components = [
            ComponentView(name, window, config.page_size, is_ring=window is not None)
            for name, window in zip(names, config.windows, strict=True)
        ]
        self.limits = Limits(
            config.page_size,
            config.max_running_requests,
            config.max_context_len,
            config.chunk_len,
            most_launches=2 if config.asynchronous else 1,
            reuses_in_launch_order=True,
            mixes_batches=True,
            shares_prefixes=config.shares_prefixes,
        )

    def settle(self) -> Iterator[NamedTuple]:
        for memory in self.memories:
            yield from memory.settle()

    def pools(self) -> Iterator[PoolView]:
        for memory in self.memories:
            yield from memory.views()

    def counted(self) -> Mapping[str, int]:
        return {name: count for memory in self.memories for name, count in memory.counted().items()}

    def tables(self, rid: str) -> tuple[tuple[int, ...], ...]:
        """The units in the tables of a request, by group."""
        device = self.memories[0]
        blocks = enumerate([allocator.block_table.get(rid, ()) for allocator in self.core.allocators])
        return tuple([tuple(device.units(group, of_group)) for group, of_group in blocks])

    def units_in_use(self, entry: TableEntry) -> tuple[Sequence[int], ...]:
        return tuple([self.units_from(group, table, 0, entry.end) for group, table in enumerate(entry.units)])

    def records(self) -> Iterator[RecordView]:
        for rid in dict.fromkeys(rid for allocator in self.core.allocators for rid in allocator.block_table):
            tables, size = self.tables(rid), self.limits.page_size
            state = self.core.scheduler.active_requests.get(rid)
            launched = 0 if state is None else state.position_offset
            whole = [group for group, component in enumerate(self.components) if not component.is_ring]
            lens = [len(tables[group]) * size for group in whole]
            if not lens:
                held, window = len(tables[0]) * size, self.components[0].window or 0
                lens = [max(held, launched) if held >= window else held]
            shared = min([self.memories[0].shared_len(group, tables[group]) * size for group in whole], default=0)
            number, allocated = number_of(rid), min(lens)
            yield self.record(number, tables, computed_len=launched, shared_len=shared, allocated_len=allocated)

    def _device_facts(self, group: int) -> GroupFacts:
        allocator, holders = self.core.allocators[group], dict[int, list[Owner]]()
        for rid, blocks in allocator.block_table.items():
            for block in blocks:
                holders.setdefault(block, []).append(Owner(REQUEST_KIND, number_of(rid)))
        ledger = allocator.ledger
        return GroupFacts(holders, ledger.shared_ref_counts, tuple(ledger.cached_blocks), ledger.block_to_hash)

    def _host_facts(self, group: int) -> GroupFacts:
        holders: dict[int, list[Owner]] = {}
        name = list(self.core.cache.cache_allocators)[group]
        copies: Mapping[str, Mapping[str, Sequence[int]]] = self.core.offloading._request_id_to_cpu_blocks
        for rid, blocks in copies.items():
            for block in blocks.get(name, ()):
                holders.setdefault(block, []).append(Owner(SWAP_KIND, number_of(rid)))
        return GroupFacts(holders)
