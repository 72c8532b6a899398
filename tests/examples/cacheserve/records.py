"""The third level: the KV of each request as a record, passes in flight, and each move of a block."""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from swarden import kit
from swarden.kit import events, view
from tests.examples.cacheserve.content import ContentPort, ContentTarget
from tests.examples.cacheserve.engine import BlockPool
from tests.examples.cacheserve.pools import BLOCKS, CacheConfig, PoolsPort


class LoggedPool(BlockPool):
    """Reports the blocks that are taken and freed; what else changes hands is found out when a state is captured."""

    def __init__(self, num_blocks: int, report: Callable[[Sequence[NamedTuple]], None]) -> None:
        super().__init__(num_blocks)
        self.owners = kit.Owners(BLOCKS, dict.fromkeys(self.counts, view.FREE))
        self._report = report

    def take(self, count: int, request_id: int) -> list[int]:
        blocks = super().take(count, request_id)
        self._report(self.owners.take(blocks, lambda _: events.Owner("request", request_id)))
        return blocks

    def release(self, blocks: Sequence[int]) -> None:
        super().release(blocks)
        self._report(self.owners.free([one for one in blocks if one in self.queue and one not in self.key_of]))

    def evict(self, blocks: Sequence[int]) -> None:
        self._report(self.owners.free([one for one in blocks if one in self.key_of], cause="evicted"))
        super().evict(blocks)


class RecordsPort(ContentPort):
    reported = ContentPort.reported | {"Taken", "Freed", "Given"}
    pool: LoggedPool

    def make_pool(self, num_blocks: int) -> BlockPool:
        return LoggedPool(num_blocks, self.report)

    def settle(self) -> Sequence[NamedTuple]:
        return self.pool.owners.settle({block: facts.owner or view.FREE for block, facts in self.facts().items()})

    def units_in_use(self, entry: kit.TableEntry) -> tuple[Sequence[int], ...]:
        return (self.units_from(0, entry.units[0], 0, entry.end),)

    def records(self) -> Iterator[view.RecordView]:
        """Each request has its own block table, so its row is its id; the tree has no nodes and gives no receipts."""
        size = self.engine.block_size
        for request in self.engine.running:
            blocks = tuple(request.blocks)
            num_cached = next((n for n, one in enumerate(blocks) if one not in self.pool.key_of), len(blocks))
            yield view.RecordView(
                owner=events.Owner("request", request.id),
                row=request.id,
                protected_len=min(num_cached * size, request.computed_len // size * size),
                committed_len=request.computed_len,
                launched_len=request.launched_len,
                allocated_len=len(blocks) * size,
                frontiers=(0,),
                units=(blocks,),
                table=blocks,
            )


class CacheTarget(ContentTarget):
    name = "cacheserve"

    def build(self, config: CacheConfig) -> PoolsPort:
        return RecordsPort(config)
