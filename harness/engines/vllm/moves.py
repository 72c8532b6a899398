"""The blocks that the release's pool hands out, takes back and evicts, with their owners."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from swarden.harness.engines.vllm.layers import POOL
from swarden.harness.kit.locks import LockMove, watch_locks
from swarden.harness.kit.owners import Owners, UnitFacts, Worker, pool_view
from swarden.invariants.events import (
    BACKUP_KIND,
    HANDOVER_KIND,
    LOAD_KIND,
    OUTSIDE_KIND,
    REQUEST_KIND,
    SESSION_KIND,
    TREE,
    TREE_KIND,
    LockCount,
    LocksCounted,
    Owner,
)
from swarden.invariants.view import FENCE, FREE, Fence, PoolView

if TYPE_CHECKING:
    from swarden.harness.engines.vllm.core import BuiltCore

HOST_POOL = "cpu_blocks"
KEPT = (TREE_KIND, LOAD_KIND, HANDOVER_KIND, SESSION_KIND)  # kinds of owners of blocks that no request frees as its own

PRESSURE = Owner(OUTSIDE_KIND)


class HeldBlock(NamedTuple):
    """A block of the device, or of CPU memory, of which the connector is a reader for a copy of this owner."""

    block: int
    owner: Owner


class CountedPool(NamedTuple):
    """A pool, and its free blocks by the release's counter, without those that are cached."""

    view: PoolView
    num_free: int


class Moves:
    """The owner of each block by the moves so far, all of which are reported.

    A block belongs to the request that took it until it is hashed, then to the cache.  Hashes are given when a pass is
    scheduled, before it writes: the change of hands is reported by `settle`, after the writes.
    """

    def __init__(
        self,
        built: "BuiltCore",
        report: Callable[[Iterable[NamedTuple]], None],
        owner: Callable[[int], Owner],
        held: Callable[[], Iterable[HeldBlock]] = tuple,
    ) -> None:
        """Blocks in copies are `held`."""
        self._built, self._report, self._owner, self._held = built, report, owner, held
        self._beside: Moves | None = None
        self._name = POOL if built.manager is not None else HOST_POOL
        self._owners = Owners(self._name, {block.block_id: FREE for block in built.pool.blocks[1:]})
        self._worker = Worker(report, kept=KEPT)
        self.outside: list[Any] = []  # blocks that no part of the engine holds
        pool, manager = built.pool, built.manager
        for name, wrapper in (
            ("get_new_blocks", self._take),
            ("free_blocks", self._free),
            ("_maybe_evict_cached_block", self._evict),
        ):
            built.wrap(pool, name, wrapper)
        for name in ("allocate_slots", "free") if manager is not None else ():
            built.wrap(manager, name, self._for_a_request)
        if hasattr(manager, "pop_blocks_for_free"):
            built.wrap(manager, "pop_blocks_for_free", self._fence)

    def hold_copies(self, held: Callable[[], Iterable[HeldBlock]], beside: "Moves") -> None:
        """From now on blocks in copies are `held`; `beside` are the moves of the blocks of CPU memory."""
        self._held, self._beside = held, beside

    def watch_locks(self) -> None:
        """Report each change of the number of readers of a cached or shared block from now on."""
        blocks = self._built.pool.blocks[1:]

        def counts() -> dict[tuple[int, str], int]:
            return {(block.block_id, self._name): block.ref_cnt for block in blocks}

        def note(request: int, moves: Sequence[LockMove]) -> None:
            hashed = {block.block_id for block in blocks if block.block_hash is not None}
            shared = [
                LockCount(pool, 0, (unit,), *numbers)
                for unit, pool, *numbers in moves
                if unit in hashed or max(numbers) > 1
            ]
            works_for = 0 if self._worker.owner is None else self._worker.owner.id
            self._report([LocksCounted(works_for or request, tuple(shared))] if shared else [])

        watch_locks([self._built.pool], counts, note)
        if self._beside is not None:
            self._beside.watch_locks()

    def hold(self, count: int) -> bool:
        """Release the blocks that are held outside the engine, then take up to `count`. False if no block moved."""
        pool, released = self._built.pool, self.outside
        self.outside = []
        if released:
            pool.free_blocks(released)
        self._worker.owner = PRESSURE
        if count := min(count, pool.get_num_free_blocks()):
            self.outside = list(pool.get_new_blocks(count))
        self._worker.owner = None
        return bool(released or self.outside)

    @property
    def copies(self) -> tuple[HeldBlock, ...]:
        """The blocks that copies of a connector keep, until the scheduler has noted their ends."""
        return tuple(self._held())

    @property
    def pools(self) -> tuple[CountedPool, ...]:
        """The pool, and that of the CPU memory."""
        queue = self._free_queue()
        view = pool_view(self._name, "block", self.facts(), queue, self._fences())
        view = replace(view, outlasts_drains=self._built.manager is None)
        num_free = self._built.pool.get_num_free_blocks() - (len(queue) - len(view.free))
        return (CountedPool(view, num_free), *(() if self._beside is None else self._beside.pools))

    def _free_queue(self) -> list[int]:
        """The free blocks in the order of the queue, by its links; a cycle ends the walk after every block."""
        queue, most, free = self._built.pool.free_block_queue, len(self._built.pool.blocks), list[int]()
        block = queue.fake_free_list_head.next_free_block
        while block is not None and block is not queue.fake_free_list_tail and len(free) < most:
            free.append(block.block_id)
            block = block.next_free_block
        return free

    def _fences(self) -> list[Fence]:
        """The blocks that are freed when a launch has completed; the release counts only launches that compute.

        A block that has lost its hash is freed by the last of its references, and only read by the others.
        """
        fences, kept = list[Fence](), Counter[int]()
        for launch, blocks in self._deferred:
            deferred = [block for block in blocks if not block.is_null]
            kept.update([block.block_id for block in deferred])
            last = [block for block in deferred if block.block_hash is None and kept[block.block_id] >= block.ref_cnt]
            units = [block.block_id for block in last]
            fences.append(Fence(launch, units, [block.block_id for block in deferred if block not in last]))
        return fences

    def settle(self) -> Iterator[NamedTuple]:
        """The events of the blocks that changed hands without a take or a free."""
        now = {unit: owner for unit, facts in self.facts().items() if (owner := facts.owner) is not None}
        yield from self._owners.settle(now)
        if self._beside is not None:
            yield from self._beside.settle()

    def facts(self) -> Mapping[int, UnitFacts]:
        """The facts of each block, from the tables and the pool; a block has a holder for each place in a table.

        The readers that a connector counts are those of its copies, which are left out.
        """
        holders: dict[int, list[Owner]] = {block.block_id: [PRESSURE] for block in self.outside}
        begun = set[int]()  # blocks that are cached by their first tokens, so that a request still writes them
        for table in self._built.tables:
            for rid, blocks in table.req_to_blocks.items():
                owner = self._owner(self._built.number_of(rid)) if blocks else FREE
                for block in blocks:
                    if not block.is_null:
                        holders.setdefault(block.block_id, []).append(owner)
                        if (getattr(block, "block_hash_num_tokens", None) or 0) % table.block_size:
                            begun.add(block.block_id)
        held = Counter[int]()
        for block_id, owner in self._held():
            held[block_id] += 1
            holders.setdefault(block_id, [owner])
        for rid, pinned in getattr(self._built.manager, "_partial_tail_pins", {}).items():  # 0.28.0, for a connector
            for block in pinned:
                held[block.block_id] += 1
                holders.setdefault(block.block_id, [self._owner(self._built.number_of(rid))])
        for _, blocks in self._deferred:  # a copy of a block that is written on
            held.update([one.block_id for one in blocks if one.block_hash is None and one.block_id in holders])
        return {
            block.block_id: UnitFacts(
                of_block := holders.get(block.block_id, ()),
                len(of_block) if block.block_id in begun else block.ref_cnt - held[block.block_id],
                block.block_hash is not None and block.block_id not in begun,
            )
            for block in self._built.pool.blocks[1:]
        }

    @property
    def _deferred(self) -> Iterable[tuple[int, Sequence[Any]]]:
        """The blocks of which references are dropped when a launch has completed."""
        return getattr(self._built.scheduler, "deferred_frees", ()) if self._built.manager else ()

    def _for_a_request(self, original: Callable[..., Any], request: Any, *args: Any, **kwargs: Any) -> Any:
        number = self._built.number_of(request.request_id)
        return self._worker.works_for(number, original, request, *args, **kwargs)

    def _fence(self, original: Callable[..., Any], request: Any) -> Any:
        """The scheduler keeps the blocks of a request until the passes in flight have completed."""
        blocks = original(request)
        units = [
            block.block_id for block in blocks if block.block_hash is None and block.ref_cnt == 1 and not block.is_null
        ]
        self._report(self._owners.free(units, cause="deferred", launch=self._built.scheduler.sched_step_seq))
        return blocks

    def _take(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        blocks = original(*args, **kwargs)
        otherwise = Owner(REQUEST_KIND if self._built.manager is not None else BACKUP_KIND)
        self._worker.take(self._owners, [block.block_id for block in blocks], otherwise)
        return blocks

    def _free(self, original: Callable[..., Any], ordered_blocks: Iterable[Any], *args: Any, **kwargs: Any) -> Any:
        blocks = list(ordered_blocks)
        result = original(blocks, *args, **kwargs)
        freed, owner_of = list[int](), self._owners.owner_of
        for block in blocks:
            unit = block.block_id
            if block.is_null or block.ref_cnt > 0:
                continue
            if block.block_hash is not None:
                if owner_of[unit] != TREE:
                    self._report(self._owners.give(owner_of[unit], TREE, [unit]))
            elif owner_of[unit] == FENCE:
                owner_of[unit] = FREE
            else:
                freed.append(unit)
        self._worker.free(self._owners, freed)
        return result

    def _evict(self, original: Callable[..., Any], block: Any, *args: Any, **kwargs: Any) -> Any:
        is_evicted = original(block, *args, **kwargs)
        if is_evicted and block.ref_cnt == 0:
            self._report(self._owners.free([block.block_id]))
        return is_evicted
