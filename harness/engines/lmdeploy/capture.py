"""Snapshots of an engine: facts from a walk over its block tables, counts, trie, states and queues of requests."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from swarden.harness.engines.lmdeploy.config import BLOCKS, STATES, LmdeployConfig
from swarden.harness.engines.lmdeploy.core import Core
from swarden.harness.engines.lmdeploy.requests import LmdeployRequests
from swarden.harness.kit.adapted import Adapted
from swarden.harness.kit.owners import Owners, UnitFacts, pool_view
from swarden.invariants.events import REQUEST_KIND, TREE, Owner
from swarden.invariants.limits import Limits
from swarden.invariants.view import FREE, ComponentView, Fence, PoolView, RecordView

MOST_LAUNCHES = 2  # a pass whose output is awaited, and the next pass


class LmdeployFacts(Adapted):
    """Walks one engine between two steps; a unit is a block or a state by its id of the release, of which 0 is padding.

    `owners` are those of the blocks and, with states, of the states.
    """

    core: Core
    requests: LmdeployRequests

    def __init__(self, config: LmdeployConfig) -> None:
        super().__init__()
        self._config = config
        self.components = [ComponentView(BLOCKS, config.window, config.page_size)]
        self.owners = [Owners(BLOCKS, dict.fromkeys(range(1, config.num_blocks + 1), FREE))]
        if config.states:
            # A request has one state, in a slot that does not move: a ring of one page.
            self.components.append(ComponentView(STATES, 2, 2, has_states=True, is_ring=True))
            self.owners.append(Owners(STATES, dict.fromkeys(range(1, config.num_states + 1), FREE)))
        self.limits = Limits(
            config.page_size,
            config.max_running_requests,
            config.max_context_len,
            config.chunk_len,
            most_launches=MOST_LAUNCHES,
            reuses_in_launch_order=True,
            draft_row_len=config.prefill_interval,
            shares_prefixes=config.shares_prefixes,
            shares_uncomputed=config.shares_prefixes,
        )

    def counted(self) -> Mapping[str, int]:
        scheduler = self.core.scheduler
        free = [scheduler.block_manager.get_num_free_gpu_blocks()]
        if self._config.states:
            free.append(scheduler.state_manager.get_num_free())
        return dict(zip((BLOCKS, STATES), free, strict=False))

    def settle(self) -> Iterator[NamedTuple]:
        for owners, facts in zip(self.owners, self._facts(), strict=True):
            now = {unit: of_unit.owner for unit, of_unit in facts.items()}
            yield from owners.settle({unit: owner for unit, owner in now.items() if owner is not None})

    def pools(self) -> Iterator[PoolView]:
        free = [self._free_blocks(), self._free_states()]
        nouns = ("block", "state")
        for owners, noun, facts, units in zip(self.owners, nouns, self._facts(), free, strict=False):
            fences = self._pins() if noun == "state" else []
            cached = [unit for unit, of_unit in facts.items() if of_unit.is_cached and not of_unit.num_readers]
            yield replace(pool_view(owners.pool, noun, facts, [*units, *cached], fences), free=units)

    def table(self, seq: Any) -> tuple[int, ...]:
        """The blocks of a request, 0 for those that have left its window."""
        blocks = self.core.allocator.get_physical_blocks(seq.logical_blocks.get_real_blocks())
        return (*[0] * (seq.num_ignored_history // self._config.page_size), *blocks.tolist())

    def units_of(self, seq: Any) -> tuple[Sequence[int], ...]:
        """The blocks of a request, and its state."""
        return (self.table(seq), (max(0, seq.logical_state),))[: len(self.components)]

    def records(self) -> Iterator[RecordView]:
        """The release counts the tokens of a chunk at its launch, and the tokens of any other pass at its output."""
        owner_of, size = self.owners[0].owner_of, self._config.page_size
        for number, seq in self.requests.seqs.items():
            if not seq.num_blocks and seq.logical_state < 0:
                continue
            table = self.table(seq)
            shared = next((index for index, unit in enumerate(table) if owner_of.get(unit) != TREE), len(table))
            lens = {"shared_len": shared * size, "allocated_len": len(table) * size}
            record = self.record(number, self.units_of(seq), computed_len=seq.num_history_ids, **lens)
            yield record._replace(frontiers=(seq.num_ignored_history, 0)[: len(self.components)])

    @property
    def _nodes(self) -> Iterator[Any]:
        """The nodes of the trie, its roots included."""
        waiting = list(self.core.scheduler.block_trie._roots.values())
        while waiting:
            node = waiting.pop()
            yield node
            waiting += node.children.values()

    def _facts(self) -> Iterator[dict[int, UnitFacts]]:
        allocator, nodes = self.core.allocator, list(self._nodes)
        physical, counts = allocator._log_mem.phy_map, allocator._log_mem.ref_count
        holders: dict[int, list[Owner]] = {}
        for number, seq in self.requests.seqs.items():
            for block in seq.logical_blocks.get_real_blocks().tolist():
                holders.setdefault(int(physical[block]), []).append(Owner(REQUEST_KIND, number))
        checkpoints = [node.state_checkpoint for node in nodes if node.state_checkpoint is not None]
        cached: dict[int, int] = {}
        for block in [*[node.block_id for node in nodes], *[checkpoint.frozen_block_id for checkpoint in checkpoints]]:
            if block >= 0:
                cached[int(physical[block])] = cached.get(int(physical[block]), 0) + 1
        counted = dict.fromkeys(range(1, self._config.num_blocks + 1), 0)
        for block in counts.nonzero()[0].tolist():
            counted[int(physical[block])] += int(counts[block])
        yield {
            unit: UnitFacts(holders.get(unit, ()), count - cached.get(unit, 0), unit in cached)
            for unit, count in counted.items()
        }
        if self._config.states:
            running: dict[int, list[Owner]] = {}
            for number, seq in self.requests.seqs.items():
                running.setdefault(seq.logical_state, []).append(Owner(REQUEST_KIND, number))
            kept, free = {checkpoint.slot: checkpoint.pin_count for checkpoint in checkpoints}, set(self._free_states())
            yield {
                slot: UnitFacts(running.get(slot, ()), kept.get(slot, int(slot not in free)), slot in kept)
                for slot in range(1, self._config.num_states + 1)
            }

    def _free_blocks(self) -> list[int]:
        allocator = self.core.allocator._gpu_allocator
        blocks: list[int] = allocator._free_blocks[allocator._num_blocks - allocator._free_count :].tolist()
        return blocks

    def _free_states(self) -> list[int]:
        allocator = self.core.scheduler.state_manager.allocator
        return allocator._free_states[-allocator._free_count :].tolist() if allocator._free_count else []

    def _pins(self) -> list[Fence]:
        """The checkpoints that a pass in flight reads or writes by copies, as its requests name them."""
        fences, seqs = [], set[int]()
        for flight in self.passes.in_flight:
            caches = [entry.req.prefix_cache for entry in flight.entries if entry.req.seq_id not in seqs]
            seqs.update([entry.req.seq_id for entry in flight.entries])
            saved = [cache.producer_save_pin.slot for cache in caches if cache.producer_save_pin.is_acquired]
            read = [cache.restore.slot for cache in caches if cache.restore.pinned]
            fences.append(Fence(flight.launch, (), [*saved, *read]))
        return [fence for fence in fences if fence.read]
