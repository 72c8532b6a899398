"""A prefix cache with a host tier, and the operations of a request on them, without a scheduler or a forward pass."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from engine_under_test.cache.match import Match
from engine_under_test.cache.prefix_cache import PrefixCache
from engine_under_test.cache.record import KVRecord
from engine_under_test.config import EngineConfig
from engine_under_test.events import Slid
from engine_under_test.host.policy import Policy
from engine_under_test.host.tier import HostTier
from engine_under_test.pools.memory import KVMemory
from engine_under_test.ports import HostStore, Observer
from engine_under_test.units import align_down
from invariants.reference import namespace_tag, next_tag


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
        expected, page_size, found = tags_of(tokens[: match.length], namespace), self.memory.page_size, {}
        for pool in self.memory.pools:
            first = pool.needed_from(match.length) // page_size
            pages = self.memory.ledgers.pages_of(pool.name, match.handles[first:])
            stored = self.memory.store.kv(pool.name)[torch.tensor(pages, dtype=torch.int64)].flatten().tolist()
            found[pool.name] = (expected[first * page_size :], stored)
        return found

    def flush(self) -> None:
        self.cache.flush()
        self.tier.flush()

    def num_available(self, match: Match) -> int:
        """Pages that every pool can supply once the match is locked; -1 if no row is free."""
        to_lock = self.cache.pages_to_lock(match)
        if not self.memory.table.rows.num_free:
            return -1
        return min(
            ledger.num_free + self.cache.evictable(ledger.name) - to_lock[ledger.name]
            for ledger in self.memory.ledgers.ledgers
        )

    def write(self, record: KVRecord, tokens: Sequence[int], namespace: int) -> None:
        """Write the tags of [protected_len, len(tokens)) into its pages, as a forward would write KV."""
        first, page_size = record.protected_len // self.memory.page_size, self.memory.page_size
        tags = tags_of(tokens, namespace)[first * page_size :]
        tags += [0] * (-len(tags) % page_size)
        for pool in self.memory.pools:
            pages = self.memory.ledgers.pages_of(pool.name, record.handles[first:])
            self.memory.store.kv(pool.name)[torch.tensor(pages)] = torch.tensor(tags).view(-1, page_size)

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
                private = record.handles[first:end]
                tombstones = self.memory.ledgers.free_alone(pool.name, private, owner=record.owner, cause="slid")
                record.receipt = self.cache.slide(record.receipt, {pool.name: frontier})
                record.write(self.memory.table, first, tombstones)
                self.observer.notice(Slid(record.owner.id, 0, frontier))
                record.frontiers[pool.name] = frontier

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
