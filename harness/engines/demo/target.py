"""The target of the demo's engine: its configurations, the port to the engine, and the snapshot."""

from collections.abc import Mapping, Sequence
from typing import Annotated

from swarden import kit
from swarden.harness.engines.demo.engine import BlockPool, Engine, Request
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


class DemoPort(kit.EnginePort):
    def __init__(self, config: DemoConfig) -> None:
        self.log = kit.EventLog(code=CODE)
        self.faults = kit.FaultPlan(kit.CLIENT_FAULTS, on_fire=lambda fault: self.log.notice(events.Fired(fault)))
        pool = LoggedPool(config.num_blocks, self.log)
        self._engine = Engine(pool, config.block_size, config.max_running, config.chunk_len)
        self._limits = kit.Limits(config.block_size, config.max_running, max_context_len=4096)
        self._steps = 0

    def submit(self, submission: kit.Submission) -> int:
        return self._engine.add(list(submission.tokens), max(1, submission.max_new_tokens), submission.stop)

    def abort(self, request_id: int) -> None:
        self._engine.abort(request_id)

    def step(self) -> Sequence[kit.Streamed]:
        self._steps += 1
        return [
            kit.Streamed(request.id, () if token is None else (token,), reason, cached_tokens=0, num_retractions=0)
            for request, token, reason in self._engine.step()
        ]

    @property
    def has_work(self) -> bool:
        return self._engine.has_work

    def capture(self) -> view.Snapshot:
        engine = self._engine
        holdings = [
            view.Holding(events.Owner("request", request.id), tuple(request.blocks), cached=False)
            for request in engine.running
        ]
        blocks = view.PoolView(BLOCKS, "block", engine.pool.num_blocks, tuple(engine.pool.free_blocks), (), holdings)
        return view.Snapshot(
            step=self._steps,
            limits=self._limits,
            components=(view.ComponentView(BLOCKS, None, self._limits.page_size),),
            pools=(blocks,),
            requests=(*_views(engine.waiting, "waiting"), *_views(engine.running, "running")),
            unreported=events.ALL_EVENTS - {"Taken", "Freed", "Fired"},
        )


def _views(requests: Sequence[Request], place: str) -> list[view.RequestView]:
    return [
        view.RequestView(request.id, place, 0, len(request.prompt), len(request.outputs), request.max_new_tokens)
        for request in requests
    ]


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
