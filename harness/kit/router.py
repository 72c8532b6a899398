"""The cache as a router knows it, from an engine's own KV events."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from swarden.invariants.events import BlocksCleared, BlocksRemoved, BlocksStored
from swarden.invariants.view import CachedBlocks

BlockEvent = BlocksStored | BlocksRemoved | BlocksCleared


class Tier(NamedTuple):
    """A group of layers, as an index of its component, on the device or on the host."""

    group: int
    on_host: bool = False


class RouterView:
    """The blocks that are cached after all KV events so far, by group and tier; each event is also reported."""

    def __init__(self, tiers: Iterable[Tier], notice: Callable[[NamedTuple], None]) -> None:
        self._reported = {tier: set[int]() for tier in tiers}
        self._notice = notice

    def follow(self, events: Iterable[BlockEvent]) -> None:
        for event in events:
            self._notice(event)
            if isinstance(event, BlocksCleared):
                for blocks in self._reported.values():
                    blocks.clear()
                continue
            view = self._reported[Tier(event.group, event.on_host)]
            view.update(event.hashes) if isinstance(event, BlocksStored) else view.difference_update(event.hashes)

    def beside(self, cached: Callable[[Tier], Iterable[int]], moving: Iterable[int] = ()) -> Iterator[CachedBlocks]:
        """The view of each group and tier, with the hashes of the blocks that are cached there or `moving`."""
        copied = frozenset(moving)
        for tier, blocks in self._reported.items():
            yield CachedBlocks(tier.group, tier.on_host, frozenset(cached(tier)), frozenset(blocks), copied)


def events_of(events: Iterable[Any], is_on_host: Callable[[Any], bool] = lambda _: False) -> Iterator[BlockEvent]:
    """The events of an engine that uses vLLM's types (BlockStored, BlockRemoved, AllBlocksCleared), as SGLang does."""
    for event in events:
        name = type(event).__name__
        if name == "AllBlocksCleared":
            yield BlocksCleared()
            continue
        group, hashes = getattr(event, "group_idx", None) or 0, tuple(event.block_hashes)
        if name == "BlockStored" and hashes:
            yield BlocksStored(group, hashes, event.parent_block_hash, is_on_host(event))
        elif name == "BlockRemoved":
            yield BlocksRemoved(group, hashes, is_on_host(event))
