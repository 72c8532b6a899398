"""The third level: the KV of each request as a record, passes in flight, and each move of a block."""

from collections.abc import Sequence
from dataclasses import replace

from swarden import kit
from swarden.kit import events, view
from tests.examples.cacheserve.content import ContentPort, ContentTarget, TagEntry, is_used
from tests.examples.cacheserve.engine import BlockPool, Request
from tests.examples.cacheserve.pools import BLOCKS, CODE, CacheConfig, PoolsPort


class LoggedPool(BlockPool):
    """Reports the blocks that are taken and freed; what else changes hands is found out when a state is captured."""

    def __init__(self, num_blocks: int, log: kit.EventLog) -> None:
        super().__init__(num_blocks)
        self.owners = kit.Owners(BLOCKS, dict.fromkeys(self.counts, view.FREE))
        self._log = log

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

    def settle(self, facts: dict[int, events.Owner]) -> None:
        self._report(self.owners.settle(facts))

    def _report(self, moves: Sequence[events.Event]) -> None:
        for move in moves:
            self._log.notice(move)


class RecordsPort(ContentPort):
    reported = ContentPort.reported | {"Taken", "Freed", "Given"}

    def __init__(self, config: CacheConfig, log: kit.EventLog) -> None:
        self.pool = LoggedPool(config.num_blocks, log)
        super().__init__(config, self.pool, log)

    def capture(self) -> view.Snapshot:
        self.pool.settle({block: facts.owner or view.FREE for block, facts in self.facts().items()})
        launches = [one.view(self._units, is_used) for one in self.model.passes.in_flight]
        records = [self._record(request) for request in self.engine.running]
        return replace(super().capture(), records=tuple(records), launches=tuple(launches))

    def _units(self, tagged: TagEntry) -> tuple[Sequence[int], ...]:
        """The blocks that an entry reads or writes."""
        return (tagged.entry.blocks[: -(-tagged.entry.end // self.engine.block_size)],)

    def _record(self, request: Request) -> view.RecordView:
        """Each request has its own block table, so its row is its id; the tree has no nodes and gives no receipts."""
        size, blocks = self.engine.block_size, tuple(request.blocks)
        num_cached = next((n for n, one in enumerate(blocks) if one not in self.pool.key_of), len(blocks))
        return view.RecordView(
            owner=events.Owner("request", request.id),
            row=request.id,
            protected_len=min(num_cached * size, request.computed_len // size * size),
            committed_len=request.computed_len,
            launched_len=request.launched_len,
            allocated_len=len(blocks) * size,
            frontiers=(0,),
            units=(blocks,),
            table=blocks,
            receipt=0,
            node=0,
        )


class CacheTarget(ContentTarget):
    name = "cacheserve"

    def build(self, config: CacheConfig) -> PoolsPort:
        return RecordsPort(config, kit.EventLog(code=CODE))
