"""The KV events of a block pool, and the blocks in its map of hashes, as a router of requests would know them."""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from swarden.harness.engines.vllm.boot import VllmRelease
from swarden.harness.engines.vllm.core import BuiltCore
from swarden.harness.kit.router import RouterView, Tier, events_of
from swarden.invariants.view import CachedBlocks


class VllmRouter:
    """Reads what the pool's `take_events` returns, to the scheduler or here."""

    def __init__(self, release: VllmRelease, built: BuiltCore, notice: Callable[[NamedTuple], None]) -> None:
        self._release, self._pool = release, built.pool
        self._taken: list[Any] = []
        self._view = RouterView([Tier(group) for group in range(len(built.tables))], notice)
        self._pool.enable_kv_cache_events = True
        take = self._pool.take_events

        def take_events() -> list[Any]:
            events: list[Any] = take()
            self._taken += events
            return events

        self._pool.take_events = take_events

    def cached_blocks(self) -> tuple[CachedBlocks, ...]:
        """The view of a router after the events so far, which are reported, beside what is cached."""
        self._pool.take_events()
        taken, self._taken = self._taken, []
        self._view.follow(events_of(taken))
        return tuple(self._view.beside(self._cached))

    def _cached(self, tier: Tier) -> Iterable[int]:
        group_of, hash_of = self._release.code("get_group_id"), self._release.code("get_block_hash")
        external = self._release.code("maybe_convert_block_hash")
        for key in self._pool.cached_block_hash_to_block._cache:
            if group_of(key) == tier.group:
                yield external(hash_of(key))
