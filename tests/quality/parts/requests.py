"""The deeds of a request on a prefix cache, without a scheduler and without a forward pass; and the prompts."""

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from swarden.engine_under_test.cache.match import Match
from swarden.engine_under_test.cache.prefix_cache import PrefixCache
from swarden.engine_under_test.cache.record import KVRecord
from swarden.engine_under_test.pools.memory import KVMemory
from swarden.engine_under_test.units import request_owner
from swarden.harness.core.ops import Recipe, expand

MAX_PROMPTS = 8  # the latest prompts, which recipes can continue


@dataclass(frozen=True, slots=True)
class Requests:
    """The memory and the cache of an engine, and what a request does with both."""

    memory: KVMemory
    cache: PrefixCache

    def num_available(self, match: Match) -> int:
        """Pages of tokens for which every pool can supply its pages once the match is locked; -1 if no row is free."""
        to_lock = self.cache.pages_to_lock(match)
        if not self.memory.table.rows.num_free:
            return -1
        available = {
            ledger.name: ledger.num_free + self.cache.evictable(ledger.name) - to_lock[ledger.name]
            for ledger in self.memory.ledgers.ledgers
        }
        capacities = [pool.chunk_capacity(available[pool.name], slack=0) for pool in self.memory.pools]
        return min(capacities) // self.memory.page_size

    def open(self, number: int, match: Match) -> KVRecord:
        """Take a row and lock the match."""
        owner, length = request_owner(number), match.length
        [row] = self.memory.table.rows.take(1, owner=owner)
        record = KVRecord(owner, row, self.cache.lock(match), length, length, length, length)
        record.write(self.memory.table, 0, match.handles)
        return record

    def grow(self, record: KVRecord, count: int, length: int, make_room: Callable[[Mapping[str, int]], object]) -> None:
        """Take `count` pages and commit `length` tokens; `make_room` frees what the pools need.

        Raises PoolExhausted with no page taken.
        """
        first, memory = len(record.handles), self.memory
        taken = {pool.name: pool.taken(first, first + count, end=length) for pool in memory.pools}
        make_room({pool: len(indices) for pool, indices in taken.items()})
        places = {pool: [index - first for index in indices] for pool, indices in taken.items()}
        record.write(memory.table, first, memory.ledgers.take(count, owner=record.owner, places=places))
        for pool, indices in taken.items():
            record.skip(pool, indices, first, first + count, page_size=memory.page_size)
        record.committed_len = record.launched_len = record.allocated_len = length

    def close(self, record: KVRecord) -> None:
        """Free the private pages, release the lock and free the row."""
        for handles, freed in record.private_parts(self.memory.page_size):
            self.memory.ledgers.free(handles, owner=record.owner, cause="finished", lacks=freed)
        self.cache.unlock(record.receipt)
        self.memory.table.rows.free([record.row], owner=record.owner, cause="finished")


class Prompts:
    """The latest prompts, for recipes that continue one of them."""

    def __init__(self) -> None:
        self._last: deque[list[int]] = deque(maxlen=MAX_PROMPTS)

    def add(self, tokens: list[int]) -> None:
        self._last.append(tokens)

    def expand(self, recipe: Recipe) -> list[int]:
        """The prompt of a recipe, after the prompt that it continues, if there is one."""
        if recipe.continues is None or not self._last:
            return expand(recipe)
        return expand(recipe, self._last[recipe.continues % len(self._last)])
