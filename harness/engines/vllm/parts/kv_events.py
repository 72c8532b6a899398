"""KV events: what the pool of a release and its offloading connector publish, as a router reads it.

Real: `take_events` of the pool, and of the `OffloadingConnector` with the hashes of its chunks.
Stand-in: the router.
Shows: a router that holds an evicted block for cached.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Annotated, Any

from swarden.harness.engines.vllm.boot import VllmRelease
from swarden.harness.engines.vllm.connector import children_of
from swarden.harness.engines.vllm.parts.disk import SecondTier
from swarden.harness.engines.vllm.parts.offload import CHUNKS
from swarden.harness.engines.vllm.parts.pair import Pairing
from swarden.harness.engines.vllm.parts.part import CACHED, Named, VllmConfig, VllmEngine, VllmPart
from swarden.harness.kit.calls import intercept
from swarden.harness.kit.launch import table
from swarden.harness.kit.part import Part, off
from swarden.harness.kit.reported import OF_ROUTERS
from swarden.harness.kit.router import RouterView, Tier, events_of
from swarden.harness.kit.settings import Drawn, Needs
from swarden.invariants.view import Snapshot

KEYS = (("get_group_id", "get_block_hash"), ("get_offload_group_idx", "get_offload_block_hash"))  # of a pool, a host
CHUNKS_OF = ("chunks", "blocks", "t1", "t2")  # the attributes of the policies LRU and ARC


class KvEvents(VllmPart, frozen=True):
    """`kv_events` is enable_kv_cache_events."""

    kv_events: Annotated[bool, Drawn((False, False, False, True))] = False

    needs = (Needs("kv_events", CACHED | off(Pairing, SecondTier) | {"offloader": (CHUNKS,)}),)
    server_need = "KV events"
    launch_table = table(kv_events=lambda line: bool(line.mapping("kv-events-config").get("enable_kv_cache_events")))
    events = OF_ROUTERS

    def arguments(self, config: VllmConfig, release: VllmRelease) -> Named:
        events = release.make("KVEventsConfig", enable_kv_cache_events=True, publisher="null")
        return {"VllmConfig": {"kv_events_config": events}}

    def attach(self, engine: VllmEngine) -> Sequence[Part]:
        return [VllmRouter(engine)]


class VllmRouter(Part):
    """Reads what `take_events` of the pool and of the connector return, to the scheduler or here."""

    def __init__(self, engine: VllmEngine) -> None:
        self._release, self._pool = engine.runner.release, engine.built.pool
        self._taken: list[Any] = []
        self._sources, self._policy = [self._pool], None
        if engine.config.offload.is_on:
            connector = children_of(engine.built.scheduler.connector)[0]
            self._sources.append(connector)
            self._policy = connector.connector_scheduler.manager._policy
        places = (False, True)[: len(self._sources)]
        tiers = [Tier(group, on_host) for on_host in places for group in range(len(engine.built.tables))]
        self._view = RouterView(tiers, engine.log.notice)
        for source in self._sources:
            intercept(source, "take_events", self._take)

    def views(self, snapshot: Snapshot) -> Snapshot:
        """With the view of a router after the events so far, which are reported, beside what is cached."""
        for source in self._sources:
            source.take_events()
        taken, self._taken = self._taken, []
        self._view.follow(events_of(taken, lambda event: event.medium == "CPU"))
        return replace(snapshot, cached_blocks=tuple(self._view.beside(self._cached)))

    def _take(self, original: Callable[[], Iterable[Any]]) -> Sequence[Any]:
        events = list(original())
        self._taken += events
        return events

    def _cached(self, tier: Tier) -> Iterable[int]:
        """The hashes of the blocks in the pool, or of the chunks in CPU memory."""
        group_of, hash_of = map(self._release.code, KEYS[tier.on_host])
        external = self._release.code("maybe_convert_block_hash")
        for key in self._stored() if tier.on_host else self._pool.cached_block_hash_to_block._cache:
            if group_of(key) == tier.group:
                yield external(hash_of(key))

    def _stored(self) -> Iterable[Any]:
        chunks = [getattr(self._policy, name, {}) for name in CHUNKS_OF]
        return [key for of_policy in chunks for key, chunk in of_policy.items() if chunk.is_ready]
