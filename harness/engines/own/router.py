"""The KV events that our engine publishes, and the pages that its tree holds, as a router knows them."""

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import NamedTuple

from swarden.engine_under_test.config import EngineConfig
from swarden.engine_under_test.kv_events import HOST, BlockRemoved, BlockStored, KVEvents, page_hashes
from swarden.harness.kit.router import BlockEvent, RouterView, Tier
from swarden.invariants.events import BlocksRemoved, BlocksStored, Dropped, Rooted, Split, Stored, Uprooted
from swarden.invariants.view import CachedBlocks, NodeView

OF_ROUTERS = (Rooted, Stored, Dropped, Split, Uprooted)  # the events from which the published ones are made


class Pages(NamedTuple):
    """The hashes of the pages of a node with these tokens, behind the page with the hash `above`, and their numbers."""

    above: str | None
    key: Sequence[int]
    hashes: tuple[str, ...]
    numbers: tuple[int, ...]


class OwnRouter:
    """Reads the events of an engine; as a router does, it computes the hash of a page from the stored tokens."""

    def __init__(self, config: EngineConfig, notice: Callable[[NamedTuple], None]) -> None:
        self._events, self._page_size = KVEvents(config.page_size), config.page_size
        self.notice = self._events.notice
        self._groups = {pool.name: group for group, pool in enumerate(config.pools)}
        hosts = [Tier(group, on_host=True) for group in self._groups.values()] if config.host_pools else []
        self._view = RouterView([*map(Tier, self._groups.values()), *hosts], notice)
        self._nodes: Sequence[NodeView] = ()
        self._pages: dict[int, Pages] = {}  # by node
        self._found: tuple[CachedBlocks, ...] = ()

    def cached_blocks(self, nodes: Sequence[NodeView]) -> tuple[CachedBlocks, ...]:
        """The view of a router after the events so far, which are reported, beside what the nodes hold."""
        events = list(self._read())
        if events or nodes is not self._nodes or not self._found:
            self._view.follow(events)
            self._nodes, self._pages = nodes, self._pages_of(nodes)
            self._found = tuple(self._view.beside(self._held))
        return self._found

    def _read(self) -> Iterator[BlockEvent]:
        for event in self._events:
            if isinstance(event, BlockStored):
                pages = self._chain(event.token_ids, event.parent_hash, event.namespace)
                parent = None if event.parent_hash is None else _number(event.parent_hash)
                yield BlocksStored(self._groups[event.pool], tuple(map(_number, pages)), parent, event.tier == HOST)
            elif isinstance(event, BlockRemoved):
                removed = tuple(map(_number, event.block_hashes))
                yield BlocksRemoved(self._groups[event.pool], removed, event.tier == HOST)

    def _held(self, tier: Tier) -> Iterator[int]:
        held = [node.id for node in self._nodes if (node.copies if tier.on_host else node.live)[tier.group]]
        return chain.from_iterable([self._pages[node].numbers for node in held])

    def _pages_of(self, nodes: Sequence[NodeView]) -> dict[int, Pages]:
        """The pages of each node, behind its parent's; those of a node that has not changed are not computed again."""
        pages_by_node: dict[int, Pages] = {}
        for node in nodes:
            above = pages_by_node[node.parent].hashes[-1] if node.parent else None
            pages = self._pages.get(node.id)
            if pages is None or pages.above != above or (pages.key is not node.key and pages.key != node.key):
                hashes = self._chain(node.key, above, node.namespace)
                pages = Pages(above, node.key, hashes, tuple(map(_number, hashes)))
            pages_by_node[node.id] = pages
        return pages_by_node

    def _chain(self, tokens: Sequence[int], above: str | None, namespace: int) -> tuple[str, ...]:
        return tuple(page_hashes(tokens, above, namespace, self._page_size))


def _number(name: str) -> int:
    return int(name[:16], 16)
