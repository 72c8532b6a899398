"""A prefix cache with a host tier, and the operations of a request on them, without a scheduler or a forward pass."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch

from swarden.engine_under_test.cache.match import Match
from swarden.engine_under_test.cache.prefix_cache import PrefixCache
from swarden.engine_under_test.cache.record import KVRecord
from swarden.engine_under_test.components import Component
from swarden.engine_under_test.config import EngineConfig
from swarden.engine_under_test.host.policy import Policy
from swarden.engine_under_test.host.tier import HostTier
from swarden.engine_under_test.pools.memory import KVMemory
from swarden.engine_under_test.ports import HostStore, Observer
from swarden.engine_under_test.units import align_down
from swarden.invariants.events import Slid
from swarden.invariants.reference import namespace_tag, next_tag


class PrefixPlaces(NamedTuple):
    """Positions of a prefix, and for each the page and the slot in one pool."""

    positions: list[int]
    pages: torch.Tensor
    slots: torch.Tensor


@dataclass(frozen=True, slots=True)
class TieredCache:
    """Pools on the device and on the host, the prefix cache over them, and the tier that moves pages between them."""

    memory: KVMemory
    cache: PrefixCache
    tier: HostTier
    observer: Observer

    @classmethod
    def for_config(cls, config: EngineConfig, store: HostStore, observer: Observer) -> "TieredCache":
        memory = KVMemory.for_config(config, observer)
        cache = PrefixCache(memory, sharing=True, observer=observer)
        return cls(memory, cache, HostTier(Policy.for_config(config), memory, cache, store, observer), observer)

    def read(self, match: Match, tokens: Sequence[int], namespace: int) -> dict[str, tuple[list[int], list[int]]]:
        """Per pool, the expected and the stored tags of the pages that the token after the match reads."""
        tags, found = tags_of(tokens[: match.length], namespace), {}
        for pool in self.memory.pools:
            first = pool.needed_from(match.length) // pool.page_size
            places = self._places(pool, match.handles, first)
            stored = self.memory.store.kv(pool.name)[places.pages, places.slots].tolist()
            found[pool.name] = ([tags[position] for position in places.positions], stored)
        return found

    def flush(self) -> None:
        self.cache.flush()
        self.tier.flush()

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

    def grow(self, record: KVRecord, count: int, length: int) -> None:
        """Take `count` pages, for `length` tokens in all; raises PoolExhausted with no page taken."""
        first, memory = len(record.handles), self.memory
        taken = {pool.name: pool.taken(first, first + count, end=length) for pool in memory.pools}
        self.tier.make_room({pool: len(indices) for pool, indices in taken.items()})
        places = {pool: [index - first for index in indices] for pool, indices in taken.items()}
        record.write(memory.table, first, memory.ledgers.take(count, owner=record.owner, places=places))
        for pool, indices in taken.items():
            record.skip(pool, indices, first, first + count, page_size=memory.page_size)
        record.committed_len = record.launched_len = length

    def write(self, record: KVRecord, tokens: Sequence[int], namespace: int) -> None:
        """Write the tags of [protected_len, len(tokens)) into its pages, as a forward would write KV."""
        tags = tags_of(tokens, namespace)
        tags += [0] * (-len(tags) % self.memory.page_size)
        for pool in self.memory.pools:
            places = self._places(pool, record.handles, record.protected_len // pool.page_size)
            written = torch.tensor([tags[position] for position in places.positions])
            self.memory.store.kv(pool.name)[places.pages, places.slots] = written

    def slide(self, record: KVRecord, dead: int) -> None:
        """Free the windowed part of the first `dead` private pages, up to the frontier that the window allows.

        If a page is freed, the windowed pages of the tree are unlocked up to the same frontier.
        """
        page_size = self.memory.page_size
        for pool in self.memory.pools if dead else ():
            max_frontier = pool.frontier(record.committed_len)
            frontier = align_down(min(record.protected_len + dead * page_size, max_frontier), page_size)
            if frontier > record.protected_len:
                first, end = record.protected_len // page_size, frontier // page_size
                private, ledgers = record.held(pool.name, first, end, page_size=page_size), self.memory.ledgers
                ledgers.free_alone(pool.name, private, owner=record.owner, cause="slid")
                record.receipt = self.cache.slide(record.receipt, {pool.name: frontier})
                record.write(self.memory.table, first, ledgers.without(pool.name, record.handles[first:end]))
                self.observer.notice(Slid(record.owner.id, 0, frontier))
                record.frontiers[pool.name] = frontier

    def _places(self, pool: Component, handles: Sequence[int], first: int) -> PrefixPlaces:
        """The places of the handles from page index `first` on: all tokens of a page, or its last states."""
        size, num_slots = pool.page_size, pool.slots or pool.page_size
        pages = self.memory.ledgers.pages_of(pool.name, handles)
        held = [index for index in range(first, len(pages)) if pages[index]]
        positions = [
            position for index in held for position in range((index + 1) * size - num_slots, (index + 1) * size)
        ]
        return PrefixPlaces(
            positions,
            torch.tensor([pages[position // size] for position in positions], dtype=torch.int64),
            torch.tensor([position % num_slots for position in positions], dtype=torch.int64),
        )

    def close(self, record: KVRecord) -> None:
        for handles, freed in record.private_parts(self.memory.page_size):
            self.memory.ledgers.free(handles, owner=record.owner, cause="finished", lacks=freed)
        self.cache.unlock(record.receipt)
        self.memory.table.rows.free([record.row], owner=record.owner, cause="finished")


def tags_of(tokens: Sequence[int], namespace: int) -> list[int]:
    """The tag of each position of a prefix."""
    tags, tag = [], namespace_tag(namespace)
    for token in tokens:
        tag = next_tag(tag, token)
        tags.append(tag)
    return tags
