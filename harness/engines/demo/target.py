"""The target of the demo's engine: its configurations, the port to the engine, and the snapshot."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated

from swarden import kit
from swarden.harness.engines.demo.engine import BlockPool, Engine
from swarden.harness.engines.demo.mutants import MUTANTS
from swarden.kit import events, view

SIZE = kit.within(1, 1 << 16)
BLOCKS = "blocks"
CODE = kit.EngineCode("swarden.harness.engines.demo", emitters=("take", "free"))


class DemoConfig(kit.Settings, frozen=True):
    num_blocks: Annotated[int, SIZE, kit.Drawn(range(4, 25))] = 16
    block_size: Annotated[int, SIZE, kit.Drawn((4, 1, 2, 16))] = 4
    max_running: Annotated[int, SIZE, kit.Drawn((4, 1, 2))] = 4
    chunk_len: Annotated[int, SIZE, kit.Drawn((8, 1, 5, 64))] = 8

    @property
    def shape(self) -> kit.Shape:
        longest, pools = self.num_blocks * self.block_size, (kit.Pool(BLOCKS, self.num_blocks),)
        return kit.Shape(self.block_size, pools, self.chunk_len, self.max_running, longest)


class LoggedPool(BlockPool):
    """Reports each take and each free as an event."""

    def __init__(self, num_blocks: int, log: kit.EventLog) -> None:
        super().__init__(num_blocks)
        self._log = log

    def take(self, count: int, request_id: int) -> list[int]:
        blocks = super().take(count, request_id)
        self._log.notice(events.Taken(BLOCKS, tuple(blocks), events.Owner("request", request_id)))
        return blocks

    def free(self, blocks: list[int], request_id: int) -> None:
        self._log.notice(events.Freed(BLOCKS, tuple(blocks), events.Owner("request", request_id), "", 0))
        super().free(blocks, request_id)


class DemoPort(kit.Adapted):
    code = CODE
    reported = kit.names_of([events.Taken, events.Freed, events.Fired])

    def __init__(self, config: DemoConfig) -> None:
        super().__init__()
        pool = LoggedPool(config.num_blocks, self.log)
        self._engine = Engine(pool, config.block_size, config.max_running, config.chunk_len)
        self.limits = kit.Limits(config.block_size, config.max_running, max_context_len=4096)
        self.components = (view.ComponentView(BLOCKS, None, config.block_size),)

    def submit(self, submission: kit.Submission) -> int:
        return self._engine.add(list(submission.tokens), max(1, submission.max_new_tokens), submission.stop)

    def abort(self, request_id: int) -> None:
        self._engine.abort(request_id)

    def step(self) -> Sequence[kit.Streamed]:
        self.begin_step()
        return [
            kit.Streamed(request.id, () if token is None else (token,), reason, cached_tokens=0, num_retractions=0)
            for request, token, reason in self._engine.step()
        ]

    @property
    def has_work(self) -> bool:
        return self._engine.has_work

    def pools(self) -> Iterator[view.PoolView]:
        pool, running = self._engine.pool, self._engine.running
        owners = {events.Owner("request", request.id): tuple(request.blocks) for request in running}
        tables = [view.Holding(owner, blocks, cached=False) for owner, blocks in owners.items()]
        yield view.PoolView(BLOCKS, "block", pool.num_blocks, tuple(pool.free_blocks), (), tables)

    def request_views(self) -> Iterator[view.RequestView]:
        for place, requests in (("waiting", self._engine.waiting), ("running", self._engine.running)):
            for request in requests:
                lengths = len(request.prompt), len(request.outputs), request.max_new_tokens
                yield view.RequestView(request.id, place, 0, *lengths)


class DemoTarget(kit.ConfiguredTarget):
    name = "demo"
    code = CODE
    machines: Mapping[str, kit.MachineSpec] = {
        kit.ENGINE: kit.MachineSpec(ops=(kit.Submit, kit.Abort, kit.Step, kit.Inject, kit.Heal, kit.Drain))
    }
    faults = kit.CLIENT_FAULTS
    config_type = DemoConfig
    catalog = MUTANTS.all

    def build(self, config: DemoConfig) -> DemoPort:
        return DemoPort(config)
