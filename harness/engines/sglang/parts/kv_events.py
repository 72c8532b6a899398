"""KV events: those of a prefix tree, and the pages of full attention that its nodes hold, as a router knows them.

Real: `take_events` of the tree (not in 0.5.17).
Stand-in: the router.
Shows: a router that holds an evicted page for cached.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Annotated, Any

from swarden.harness.engines.sglang.capability import SglangCapability, SglangEngine, SglangPart, Terms
from swarden.harness.engines.sglang.parts.pair import Side
from swarden.harness.engines.sglang.parts.rust_core import RustCore
from swarden.harness.kit.launch import table
from swarden.harness.kit.part import off
from swarden.harness.kit.reported import OF_ROUTERS
from swarden.harness.kit.router import RouterView, Tier, events_of
from swarden.harness.kit.settings import Drawn, IfReleaseHas, Needs
from swarden.invariants.view import Snapshot

COPIES = ("write_through_pending_id", "load_back_pending_id")  # fields of a node that is copied between the tiers
FULL = 0  # the only component with KV events


class KvEvents(SglangCapability, frozen=True):
    """`kv_events` publishes KV events, in the format that tells namespaces apart."""

    kv_events: Annotated[bool, Drawn((False, False, False, True)), IfReleaseHas("kv_event_namespaces")] = False

    needs = (Needs("kv_events", off(Side, RustCore)),)
    server_need = "KV events"
    events = OF_ROUTERS
    launch_table = table(kv_events=lambda line: bool(line.mapping("kv-events-config")))

    def terms(self, config: Any) -> Terms:
        return Terms(cache_params={"enable_kv_cache_events": True, "dynamo_kv_event_format": True})

    def attach(self, engine: SglangEngine) -> Sequence[SglangPart]:
        return [SglangRouter(engine)]


class SglangRouter(SglangPart):
    """Reads what the tree's `take_events` returns; the hashes of its nodes are computed from their tokens."""

    def __init__(self, engine: SglangEngine) -> None:
        self._release, self._tree = engine.release, engine.memory.tree
        host = [Tier(FULL, on_host=True)] if hasattr(self._tree, "ongoing_write_through") else []
        self._view = RouterView([Tier(FULL), *host], engine.log.notice)

    def views(self, snapshot: Snapshot) -> Snapshot:
        """With the view of a router after the events so far, which are reported, beside what is cached."""
        medium = self._release.code("StorageMedium")
        self._view.follow(events_of(self._tree.take_events(), lambda event: event.medium == medium.CPU))
        nodes = list(self._nodes(self._tree.root_node, None))

        def hashes_of(is_meant: Callable[[Any], bool]) -> list[int]:
            return [block for node, hashes in nodes if is_meant(node) for block in hashes]

        views = self._view.beside(lambda tier: hashes_of(partial(self._is_held, tier)), hashes_of(_is_copied))
        return replace(snapshot, cached_blocks=tuple(views))

    def _is_held(self, tier: Tier, node: Any) -> bool:
        if not hasattr(node, "component_data"):
            return not tier.on_host  # of SWARadixCache, where each node has its full attention
        of_full = node.component_data[self._release.code("ComponentType").FULL]
        return (of_full.host_value if tier.on_host else of_full.value) is not None

    def _nodes(self, above: Any, hash_above: str | None) -> Iterator[tuple[Any, Iterable[int]]]:
        """Each node below `above`, with the hashes of its pages."""
        release = self._release
        to_int, namespaced = release.code("hash_str_to_int64"), release.code("namespaced_block_hash")
        for node in above.children.values():
            seed = release.code("kv_event_namespace_seed")(
                extra_key=node.key.extra_key, cache_salt=getattr(node.key, "cache_salt", None)
            )
            hashes = release.code("get_hash_str")(node.key, hash_above, page_size=self._tree.page_size)
            yield node, [namespaced(to_int(text), namespace_seed=seed) for text in hashes]
            yield from self._nodes(node, hashes[-1])


def _is_copied(node: Any) -> bool:
    return any(getattr(node, name, None) is not None for name in COPIES)
