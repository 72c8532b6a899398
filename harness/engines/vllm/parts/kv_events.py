"""KV events: what the pool of a release publishes, as a router reads it.

Real: `take_events` of the pool.
Stand-in: the router.
Shows: a router that holds an evicted block for cached.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Annotated, Any

from swarden.harness.engines.vllm.parts.offload import Offload
from swarden.harness.engines.vllm.parts.pair import Pairing
from swarden.harness.engines.vllm.parts.part import CACHED, VllmEngine, VllmPart
from swarden.harness.kit.launch import table
from swarden.harness.kit.part import Part, off
from swarden.harness.kit.reported import OF_ROUTERS
from swarden.harness.kit.router import RouterView, Tier, events_of
from swarden.harness.kit.settings import Drawn, Needs
from swarden.invariants.view import Snapshot


class KvEvents(VllmPart, frozen=True):
    """`kv_events` is enable_kv_cache_events."""

    kv_events: Annotated[bool, Drawn((False, False, False, True))] = False

    needs = (Needs("kv_events", CACHED | off(Offload, Pairing)),)
    server_need = "KV events"
    launch_table = table(kv_events=lambda line: bool(line.mapping("kv-events-config").get("enable_kv_cache_events")))
    events = OF_ROUTERS

    def attach(self, engine: VllmEngine) -> Sequence[Part]:
        return [VllmRouter(engine)]


class VllmRouter(Part):
    """Reads what the pool's `take_events` returns, to the scheduler or here."""

    def __init__(self, engine: VllmEngine) -> None:
        self._release, self._pool = engine.runner.release, engine.built.pool
        self._taken: list[Any] = []
        self._view = RouterView([Tier(group) for group in range(len(engine.built.tables))], engine.log.notice)
        self._pool.enable_kv_cache_events = True
        take = self._pool.take_events

        def take_events() -> list[Any]:
            events: list[Any] = take()
            self._taken += events
            return events

        self._pool.take_events = take_events

    def views(self, snapshot: Snapshot) -> Snapshot:
        """With the view of a router after the events so far, which are reported, beside what is cached."""
        self._pool.take_events()
        taken, self._taken = self._taken, []
        self._view.follow(events_of(taken))
        return replace(snapshot, cached_blocks=tuple(self._view.beside(self._cached)))

    def _cached(self, tier: Tier) -> Iterable[int]:
        group_of, hash_of = self._release.code("get_group_id"), self._release.code("get_block_hash")
        external = self._release.code("maybe_convert_block_hash")
        for key in self._pool.cached_block_hash_to_block._cache:
            if group_of(key) == tier.group:
                yield external(hash_of(key))
