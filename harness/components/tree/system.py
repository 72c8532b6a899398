"""The prefix cache of one engine alone, over its pools, compared with a naive model."""

from collections.abc import Sequence
from typing import NamedTuple

from swarden.engine_under_test.cache.record import KVRecord
from swarden.engine_under_test.config import EngineConfig
from swarden.engine_under_test.pools.memory import KVMemory
from swarden.engine_under_test.pools.paired import shortage
from swarden.engine_under_test.units import num_pages, request_owner
from swarden.harness.components.engine_code import CODE
from swarden.harness.components.limits import counters_of, limits_of
from swarden.harness.components.memory_walk import MemoryWalk
from swarden.harness.components.neighbour import Neighbour
from swarden.harness.components.tree.modelled_cache import ComparedMatch, LockHolder, ModelledCache
from swarden.harness.core.event_log import EventLog
from swarden.harness.core.ops import Drain, Evict, Flush, Insert, Lock, Op, Pressure, Recipe, Slide, Unlock, name_of
from swarden.harness.core.recipes import Prompts
from swarden.invariants import view
from swarden.invariants.events import Matched, Slid
from swarden.invariants.reference import Reference

TREE_OPS: tuple[type[Op], ...] = (Insert, Lock, Unlock, Slide, Evict, Flush, Pressure, Drain)


class TreeSystem:
    """A KVMemory and a PrefixCache, and readers that hold locks on cached prefixes.

    Each reader has a row, a receipt and no private page.  The ordinal of its owner is the number of its op.  A reader
    runs no forward, so a snapshot shows its receipt and its row, but no record.
    """

    def __init__(self, config: EngineConfig) -> None:
        self.reference = Reference()
        self.steps_without_forward = 0
        self._config = config
        self.log = EventLog(code=CODE)
        self._memory = KVMemory.for_config(config, self.log)
        self._windowed = [pool for pool in self._memory.pools if pool.leaves_tombstones]
        self._cache = ModelledCache(config, self._memory, self.log)
        self._neighbour = Neighbour(self._memory)
        self._walk = MemoryWalk(self._memory, self._cache.cache.tree)
        self._readers: list[LockHolder] = []
        self._prompts = Prompts()
        self._num_ops = 0

    @property
    def has_work(self) -> bool:
        return False

    @property
    def drain_bound(self) -> int:
        return 0

    def do(self, op: Op) -> bool:
        self._num_ops += 1
        had_effect = self._apply(op)
        self._cache.compare(name_of(op), self._neighbour)
        return had_effect

    def heal(self) -> None:
        self._neighbour.release_all()

    def clear(self) -> None:
        """Every reader unlocks, then the cache is flushed."""
        while self._readers:
            self._close(self._readers.pop())
        self._cache.flush()
        self._cache.compare("clear", self._neighbour)

    def capture(self) -> view.Snapshot:
        walk = self._walk
        held = {pool.name: self._neighbour.holdings(pool.name) for pool in self._memory.pools}
        walk.visit([reader.record for reader in self._readers], held)
        return view.Snapshot(
            self._num_ops,
            limits_of(self._config),
            walk.components,
            walk.pools,
            walk.peer_maps,
            walk.nodes,
            walk.receipts,
            records=None,
            requests=None,
            counters=counters_of(self._memory, self._cache.cache.tree, ratio=1.0),
        )

    def take_events(self) -> list[NamedTuple]:
        events = self.log.take() + self._cache.comparisons
        self._cache.comparisons = []
        return events

    def _apply(self, op: Op) -> bool:
        match op:
            case Insert():
                return self._insert(op)
            case Lock():
                return self._lock(op)
            case Unlock():
                return self._unlock(op)
            case Slide():
                return self._slide(op)
            case Evict():
                return self._evict(op.need)
            case Flush():
                return self._flush()
            case Pressure():
                return self._neighbour.hold(op.pool, op.pages)
            case _:
                return False

    def _insert(self, op: Insert) -> bool:
        """Act as a request from admission to finish, without a forward. The prompt is cut to the available pages.

        |matched, locked|fresh, windowed pages gone|frontier|fresh .... |whole pages end|private rest|
        """
        tokens, page_size = self._tokens(op.recipe), self._config.page_size
        found = self._match(tokens, op.namespace)
        shared = len(found.match.handles)
        count = min(num_pages(len(tokens), page_size) - shared, self._num_available(found))
        tokens = tokens[: (shared + count) * page_size]
        if count <= 0 or len(tokens) < page_size:
            return False
        reader = self._open(found)
        self._grow(reader.record, count, len(tokens))
        self._slide_window(reader, self._frontier(reader.record, op.dead))
        self._cache.publish(reader, tokens, op.namespace)
        self._close(reader)
        self._prompts.add(tokens)
        return True

    def _lock(self, op: Lock) -> bool:
        """Match and lock a prefix. If no page matches, the lock covers no page."""
        found = self._match(self._tokens(op.recipe), op.namespace)
        if self._num_available(found) < 0:
            return False
        self._readers.append(self._open(found))
        return True

    def _unlock(self, op: Unlock) -> bool:
        if not self._readers:
            return False
        self._close(self._readers.pop(op.receipt % len(self._readers)))
        return True

    def _slide(self, op: Slide) -> bool:
        """Slide the window of a reader that has windowed pages locked, by at least one page."""
        readers = [reader for reader in self._readers if self._cache.first_windowed(reader) is not None]
        if not readers:
            return False
        reader = readers[op.receipt % len(readers)]
        first, end = self._cache.first_windowed(reader) or 0, reader.record.protected_len // self._config.page_size
        return self._slide_window(reader, min(max(op.page, first + 1), end) * self._config.page_size)

    def _evict(self, counts: Sequence[int]) -> bool:
        need = {pool.name: count for pool, count in zip(self._memory.pools, counts, strict=False)}
        has_any = any(count and self._cache.cache.evictable(pool) for pool, count in need.items())
        self._cache.evict(need)
        return has_any

    def _flush(self) -> bool:
        has_any = any(self._cache.cache.evictable(pool.name) for pool in self._memory.pools)
        self._cache.flush()
        return has_any

    def _tokens(self, recipe: Recipe) -> list[int]:
        return self._prompts.expand(recipe)[: self._config.max_context_len]

    def _match(self, tokens: Sequence[int], namespace: int) -> ComparedMatch:
        found = self._cache.match(tokens, namespace)
        match = found.match
        self.log.notice(Matched(self._num_ops, namespace, tuple(tokens), match.length, tuple(match.handles)))
        return found

    def _num_available(self, found: ComparedMatch) -> int:
        """Pages of tokens for which every pool can supply its pages once the match is locked; -1 if no row is free."""
        to_lock, page_size = self._cache.pages_to_lock(found), self._config.page_size
        if not self._memory.table.rows.num_free:
            return -1
        available = {
            ledger.name: ledger.num_free + self._cache.cache.evictable(ledger.name) - to_lock[ledger.name]
            for ledger in self._memory.ledgers.ledgers
        }
        return min(pool.chunk_capacity(available[pool.name], slack=0) for pool in self._memory.pools) // page_size

    def _open(self, found: ComparedMatch) -> LockHolder:
        """Take a row and lock the match."""
        owner, length = request_owner(self._num_ops), found.match.length
        [row] = self._memory.table.rows.take(1, owner=owner)
        record = KVRecord(owner, row, self._cache.cache.lock(found.match), length, length, length, length)
        record.write(self._memory.table, 0, found.match.handles)
        return self._cache.lock(found, record)

    def _grow(self, record: KVRecord, count: int, length: int) -> None:
        """Allocate and commit `length` tokens; raises PoolExhausted if the tree's evictable counter is wrong."""
        ledgers, first = self._memory.ledgers, len(record.handles)
        taken = {pool.name: pool.taken(first, first + count, end=length) for pool in self._memory.pools}
        short = shortage(ledgers.ledgers, {pool: len(indices) for pool, indices in taken.items()})
        if short:
            self._cache.evict(short)
            self._cache.compare("eviction for an insertion", self._neighbour)
        places = {pool: [index - first for index in indices] for pool, indices in taken.items()}
        record.write(self._memory.table, first, ledgers.take(count, owner=record.owner, places=places))
        for pool, indices in taken.items():
            record.skip(pool, indices, first, first + count, page_size=self._config.page_size)
        record.committed_len = record.launched_len = record.allocated_len = length

    def _frontier(self, record: KVRecord, dead: int) -> int:
        """The frontier after the first `dead` private pages, limited to the largest frontier of a committed request."""
        if not self._windowed or not dead:
            return 0
        max_frontier = min(pool.frontier(record.committed_len) for pool in self._windowed)
        return min(record.protected_len + dead * self._config.page_size, max_frontier)

    def _slide_window(self, reader: LockHolder, frontier: int) -> bool:
        """Unlock the tree's pages below `frontier`, and free the private ones.

        |the tree's, unlocked |protected_len|..freed..|frontier|
        """
        record, ledgers, page_size = reader.record, self._memory.ledgers, self._config.page_size
        before = record.highest_frontier
        if frontier <= before or not self._cache.slide(reader, {pool.name: frontier for pool in self._windowed}):
            return False
        first, end = before // page_size, frontier // page_size
        border = min(max(first, record.protected_len // page_size), end)
        for pool in self._windowed:
            private = record.held(pool.name, border, end, page_size=page_size)
            ledgers.free_alone(pool.name, private, owner=record.owner, cause="slid")
            record.write(self._memory.table, first, ledgers.without(pool.name, record.handles[first:end]))
            record.frontiers[pool.name] = frontier
        self.log.notice(Slid(record.owner.id, before, frontier))
        return True

    def _close(self, reader: LockHolder) -> None:
        """Free the private pages, release the lock and free the row."""
        record = reader.record
        for handles, freed in record.private_parts(self._config.page_size):
            self._memory.ledgers.free(handles, owner=record.owner, cause="finished", lacks=freed)
        self._cache.unlock(reader)
        self._memory.table.rows.free([record.row], owner=record.owner, cause="finished")
