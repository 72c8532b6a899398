"""The target of the demo's engine: its configurations, the port to the engine, and the snapshot."""

from collections.abc import Mapping, Sequence
from typing import Any

from swarden import kit
from swarden.harness.engines.demo.engine import BlockPool, Engine, Request
from swarden.kit import events, view

DEFAULTS = {"num_blocks": 16, "block_size": 4, "max_running": 4, "chunk_len": 8}
BLOCKS = "blocks"
CODE = kit.EngineCode("swarden.harness.engines.demo", emitters=("take", "free"))


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
    def __init__(self, config: Mapping[str, int]) -> None:
        self.log = kit.EventLog(code=CODE)
        self.faults = kit.FaultPlan(kit.CLIENT_FAULTS, on_fire=lambda fault: self.log.notice(events.Fired(fault)))
        sizes = {name: size for name, size in config.items() if name != "num_blocks"}
        self._engine = Engine(LoggedPool(config["num_blocks"], self.log), **sizes)
        self._limits = kit.Limits(config["block_size"], config["max_running"], max_context_len=4096)
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
            view.Holding(events.Owner("request", one.id), tuple(one.blocks), cached=False) for one in engine.running
        ]
        blocks = view.PoolView(BLOCKS, "block", engine.pool.num_blocks, tuple(engine.pool.free_blocks), (), holdings)
        return view.Snapshot(
            step=self._steps,
            limits=self._limits,
            components=(view.ComponentView(BLOCKS, None),),
            pools=(blocks,),
            requests=(*_views(engine.waiting, "waiting"), *_views(engine.running, "running")),
            unreported=events.ALL_EVENTS - {"Taken", "Freed", "Fired"},
        )


def _views(requests: Sequence[Request], place: str) -> list[view.RequestView]:
    return [
        view.RequestView(one.id, place, 0, len(one.prompt), len(one.outputs), one.max_new_tokens) for one in requests
    ]


class DemoTarget(kit.Target):
    name = "demo"
    code = CODE
    machines: Mapping[str, kit.MachineSpec] = {
        kit.ENGINE: kit.MachineSpec(ops=(kit.Submit, kit.Abort, kit.Step, kit.Inject, kit.Heal, kit.Drain))
    }
    faults = kit.CLIENT_FAULTS
    defaults = DEFAULTS

    def config(self, draw: kit.Draw) -> dict[str, int]:
        sizes = {"num_blocks": draw.integer(4, 24), "block_size": draw.one_of((4, 1, 2, 16))}
        return sizes | {"max_running": draw.one_of((4, 1, 2)), "chunk_len": draw.one_of((8, 1, 5, 64))}

    def decode(self, mapping: Mapping[str, Any]) -> dict[str, int]:
        config = DEFAULTS | dict(mapping)
        for name, value in config.items():
            if name not in DEFAULTS or type(value) is not int or not 1 <= value <= 1 << 16:
                raise kit.InvalidConfig(f"{name} is {value!r}; want {', '.join(DEFAULTS)}, numbers from 1 to {1 << 16}")
        return config

    def shape(self, config: dict[str, int]) -> kit.Shape:
        longest = config["num_blocks"] * config["block_size"]
        pools = (kit.Pool(BLOCKS, config["num_blocks"]),)
        return kit.Shape(config["block_size"], pools, config["chunk_len"], config["max_running"], longest)

    def build(self, config: dict[str, int]) -> DemoPort:
        return DemoPort(config)
