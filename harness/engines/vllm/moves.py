"""The blocks that the release's pool hands out, takes back and evicts, with their owners."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain, compress
from operator import attrgetter, ne
from typing import TYPE_CHECKING, Any, NamedTuple

from swarden.harness.engines.vllm.free_queue import FreeQueue
from swarden.harness.engines.vllm.layers import POOL
from swarden.harness.kit.locks import LockMove, watch_locks
from swarden.harness.kit.owners import CountedUnits, Owners, Worker, place_of
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
Table = tuple[int, str, Owner]  # the group, the request and the owner of a table
NO_TABLE = list[int]()
ids_of = partial(map, attrgetter("block_id"))


class HeldBlock(NamedTuple):
    """A block of the device, or of CPU memory, of which the connector is a reader for a copy of this owner."""

    block: int
    owner: Owner


class BlockFacts:
    """The facts of the blocks of a pool, of those that something holds or counts.

    A look reads the tables, and the blocks that the calls of the pool have marked; after an audit, all blocks.
    """

    def __init__(
        self, built: "BuiltCore", owner: Callable[[int], Owner], held: Callable[[], Iterable[HeldBlock]]
    ) -> None:
        self._built, self._owner, self.held = built, owner, held
        self.all = range(1, len(built.pool.blocks))
        self.counted = CountedUnits()
        self.marked = set(self.all)  # blocks that may have changed since the last look
        self.queue = FreeQueue(built.pool)
        self.unsettled = set[int]()  # blocks that may have changed hands since the last settle
        self.outside: list[Any] = []  # blocks that no part of the engine holds
        self.tables: dict[Table, list[int]] = {}  # the blocks at the last look
        self.hashed = set[int]()
        self._copied = set[int]()  # the blocks of copies and deferred frees at the last look

    def audit(self) -> None:
        """Let the next look read each block that is or was in use, and the whole queue."""
        blocks = self._built.pool.blocks
        self.marked.update([block.block_id for block in blocks if block.ref_cnt or block._block_hash is not None])
        self.marked.update(self.counted.places)
        self.queue.is_unknown = True

    def look(self) -> None:
        """Find the facts of the blocks that are marked, in copies, or in another place of a table than before.

        A block has a holder for each place in a table.  The readers that a connector counts are those of its copies,
        which are left out.
        """
        if self._built.manager is None:
            self.audit()
        before, tables, marked, self.marked = self.tables, self._built.tables, self.marked, set()
        self.queue.moved |= marked
        rids = chain.from_iterable([table.req_to_blocks for table in tables])
        owners = {rid: self._owner(self._built.number_of(rid)) for rid in set(rids)}
        self.tables = {
            (group, rid, owners[rid]): [*ids_of(blocks)]
            for group, table in enumerate(tables)
            for rid, blocks in table.req_to_blocks.items()
            if blocks
        }
        for key in before.keys() | self.tables.keys() if before != self.tables else ():
            was, now = before.get(key, NO_TABLE), self.tables.get(key, NO_TABLE)
            if was != now[: len(was)]:
                marked.update(*compress(zip(was, now, strict=False), map(ne, was, now)), was[len(now) :])
            marked.update(now[len(was) :])
        copies, deferred = [*self.held(), *self._pinned()], [block for _, blocks in self.deferred for block in blocks]
        were, self._copied = self._copied, {*[block for block, _ in copies], *ids_of(deferred)}
        marked |= were | self._copied
        marked.discard(0)
        if not marked:
            return
        self.unsettled |= marked
        blocks = self._built.pool.blocks
        self.hashed -= marked
        self.hashed.update([unit for unit in marked if blocks[unit]._block_hash is not None])
        holders: dict[int, list[Owner]] = {unit: [PRESSURE] for unit in ids_of(self.outside)}
        begun = set[int]()  # blocks that are cached by their first tokens, so that a request still writes them
        for (group, _, owner), units in self.tables.items():
            for unit in filter(marked.__contains__, units):
                holders.setdefault(unit, []).append(owner)
                if (getattr(blocks[unit], "_block_hash_num_tokens", 0) or 0) % tables[group].block_size:
                    begun.add(unit)
        held = Counter([unit for unit, _ in copies])
        holders = {unit: [owner] for unit, owner in reversed(copies)} | holders
        # a copy of a block that is written on
        held.update([one.block_id for one in deferred if one.block_hash is None and one.block_id in holders])
        for unit in marked:
            block, of_block = blocks[unit], holders.get(unit, ())
            num_readers = len(of_block) if unit in begun else block.ref_cnt - held.get(unit, 0)
            place = place_of(of_block, num_readers, unit in self.hashed and unit not in begun)
            if self.counted.put(unit, place) or (block.next_free_block is None) is (unit in self.queue):
                self.queue.moved.add(unit)

    def _pinned(self) -> Iterator[HeldBlock]:
        """The blocks that 0.28.0 pins for a connector beside the tables."""
        for rid, pinned in getattr(self._built.manager, "_partial_tail_pins", {}).items():
            owner = self._owner(self._built.number_of(rid))
            yield from (HeldBlock(block.block_id, owner) for block in pinned)

    @property
    def deferred(self) -> Iterable[tuple[int, Sequence[Any]]]:
        """The blocks of which references are dropped when a launch has completed."""
        return getattr(self._built.scheduler, "deferred_frees", ()) if self._built.manager else ()


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
        self._built, self._report = built, report
        self._beside: Moves | None = None
        self._name = POOL if built.manager is not None else HOST_POOL
        self.blocks = BlockFacts(built, owner, held)
        self._owners, self._worker = Owners(self._name, dict.fromkeys(self.blocks.all, FREE)), Worker(report, kept=KEPT)
        pool, manager = built.pool, built.manager
        for name, wrapper in (
            ("get_new_blocks", self._take),
            ("free_blocks", self._free),
            ("_maybe_evict_cached_block", self._evict),
            ("touch", self._mark),
            ("unpin_blocks", self._mark),
            ("move_block_hashes", self._mark_hashed),
            ("reset_prefix_cache", self._mark_all),
        ):
            if hasattr(pool, name):
                built.wrap(pool, name, wrapper)
        built.wrap(pool.cached_block_hash_to_block, "insert", self._mark_hashed)
        for name in ("allocate_slots", "free") if manager is not None else ():
            built.wrap(manager, name, self._for_a_request)
        if hasattr(manager, "pop_blocks_for_free"):
            built.wrap(manager, "pop_blocks_for_free", self._fence)

    def hold_copies(self, held: Callable[[], Iterable[HeldBlock]], beside: "Moves | None" = None) -> None:
        """From now on blocks in copies are `held`; `beside` are the moves of those of CPU memory."""
        self.blocks.held, self._beside = held, beside

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
        pool, released = self._built.pool, self.blocks.outside
        self.blocks.outside = []
        if released:
            pool.free_blocks(released)
        self._worker.owner = PRESSURE
        if count := min(count, pool.get_num_free_blocks()):
            self.blocks.outside = list(pool.get_new_blocks(count))
        self._worker.owner = None
        return bool(released or self.blocks.outside)

    @property
    def copies(self) -> tuple[HeldBlock, ...]:
        """The blocks that copies of a connector keep, until the scheduler has noted their ends."""
        return tuple(self.blocks.held())

    @property
    def pools(self) -> list[tuple[PoolView, int]]:
        """The pool, and that of the CPU memory, as the last look found their blocks.

        Each with its free blocks by the release's counter, without those that are cached.
        """
        queue, counted = self.blocks.queue, self.blocks.counted
        queue.read(counted.places)
        parts = queue.free, self._fences(), counted.holdings(queue.evictable), self._built.manager is None
        view = PoolView(self._name, "block", len(self.blocks.all), *parts)
        num_free = self._built.pool.get_num_free_blocks() - len(queue.evictable)
        return [(view, num_free), *(() if self._beside is None else self._beside.pools)]

    def _fences(self) -> list[Fence]:
        """The blocks that are freed when a launch has completed; the release counts only launches that compute.

        A block that has lost its hash is freed by the last of its references, and only read by the others.
        """
        fences, kept = list[Fence](), Counter[int]()
        for launch, blocks in self.blocks.deferred:
            deferred = [block for block in blocks if not block.is_null]
            kept.update([block.block_id for block in deferred])
            last = [block for block in deferred if block.block_hash is None and kept[block.block_id] >= block.ref_cnt]
            units = [block.block_id for block in last]
            fences.append(Fence(launch, units, [block.block_id for block in deferred if block not in last]))
        return fences

    def settle(self) -> Iterator[NamedTuple]:
        """The events of the blocks that changed hands without a take or a free."""
        self.blocks.look()
        changed, self.blocks.unsettled = sorted(self.blocks.unsettled), set()
        owners = map(self.blocks.counted.owner, changed)
        yield from self._owners.settle({unit: owner for unit, owner in zip(changed, owners, strict=True) if owner})
        if self._beside is not None:
            yield from self._beside.settle()

    def _for_a_request(self, original: Callable[..., Any], request: Any, *args: Any, **kwargs: Any) -> Any:
        number = self._built.number_of(request.request_id)
        return self._worker.works_for(number, original, request, *args, **kwargs)

    def _fence(self, original: Callable[..., Any], request: Any) -> Any:
        """The scheduler keeps the blocks of a request until the passes in flight have completed."""
        kept = Counter([block.block_id for _, deferred in self.blocks.deferred for block in deferred])
        blocks = original(request)
        lost = [block for block in blocks if block.block_hash is None and not block.is_null]
        units = [block.block_id for block in lost if block.ref_cnt <= 1 + kept[block.block_id]]
        self._report(self._owners.free(units, cause="deferred", launch=self._built.scheduler.sched_step_seq))
        return blocks

    def _mark(self, original: Callable[..., Any], blocks: Iterable[Any], *args: Any, **kwargs: Any) -> Any:
        marked = list(blocks)
        self.blocks.marked.update([block.block_id for block in marked])
        return original(marked, *args, **kwargs)

    def _mark_hashed(self, original: Callable[..., Any], *args: Any) -> Any:
        self.blocks.marked.update([one.block_id for one in args if not isinstance(one, bytes)])
        return original(*args)

    def _mark_all(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        self.blocks.audit()
        known, is_reset = self._built.pool.cached_block_hash_to_block, original(*args, **kwargs)
        if (new := self._built.pool.cached_block_hash_to_block) is not known:
            self._built.wrap(new, "insert", self._mark_hashed)
        return is_reset

    def _take(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        blocks = original(*args, **kwargs)
        self.blocks.marked.update([block.block_id for block in blocks])
        otherwise = Owner(REQUEST_KIND if self._built.manager is not None else BACKUP_KIND)
        self._worker.take(self._owners, [block.block_id for block in blocks], otherwise)
        return blocks

    def _free(self, original: Callable[..., Any], ordered_blocks: Iterable[Any], *args: Any, **kwargs: Any) -> Any:
        blocks = list(ordered_blocks)
        self.blocks.marked.update([block.block_id for block in blocks])
        result = original(blocks, *args, **kwargs)
        freed, owner_of = list[int](), self._owners.owner_of
        for block in blocks:
            unit = block.block_id
            if block.is_null:
                continue
            if block.ref_cnt > 0:
                self._fence_alone(block)
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

    def _fence_alone(self, block: Any) -> None:
        """A copy has let go of a block, which perhaps only passes in flight keep now."""
        launches = [launch for launch, blocks in self.blocks.deferred for one in blocks if one is block]
        is_kept = block.block_hash is not None or len(launches) < block.ref_cnt
        if launches and not is_kept and self._owners.owner_of[block.block_id] != FENCE:
            self._report(self._owners.free([block.block_id], cause="deferred", launch=max(launches)))

    def _evict(self, original: Callable[..., Any], block: Any, *args: Any, **kwargs: Any) -> Any:
        self.blocks.marked.add(block.block_id)
        is_evicted = original(block, *args, **kwargs)
        if is_evicted and block.ref_cnt == 0:
            self._report([self._owners.free_one(block.block_id)])
        return is_evicted
