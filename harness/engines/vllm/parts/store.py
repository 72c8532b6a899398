"""KV connector: a store outside of the engine has the first tokens of every prompt.

Real: factory, look-ups, loads within a step or in the background, `kv_load_failure_policy` "recompute" and "fail"
(`recomputes_loads`), blocks kept for a save; the `KVOutputAggregator` of several workers.
Stand-in: the store, also of what was saved. Every second load in the background is written at once, the others at their
end; none waits for a pass. Faults: `load.fails`, `load.late`, `store.late`.
Shows: blocks that are read before they are loaded, or freed before they are saved, in each worker.
"""

import importlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Annotated, Any, NamedTuple

from swarden.harness.core.errors import InvalidConfig
from swarden.harness.core.target import Draw
from swarden.harness.engines.vllm import connector
from swarden.harness.engines.vllm.boot import VllmRelease
from swarden.harness.engines.vllm.connector import LOAD_FAILS, LOAD_FAULTS, LOAD_LATE, STORE_LATE, ConnectorWorker
from swarden.harness.engines.vllm.front import number_of
from swarden.harness.engines.vllm.layers import ALIGN, MAX_CONTEXT_LEN, POOL
from swarden.harness.engines.vllm.parts.part import Named, VllmConfig, VllmEngine, VllmPart
from swarden.harness.engines.vllm.passes import VllmPass
from swarden.harness.engines.vllm.transfers import BlockLoad, BlockSave
from swarden.harness.kit.launch import Line
from swarden.harness.kit.part import Part
from swarden.harness.kit.settings import Drawn, Needs, PartOf, drawn, replaced, within
from swarden.invariants.events import HANDOVER_KIND, CopiedIn, Discarded, PrefixesCompared

NAME = "PromptStore"
TRANSFERS = ("finished_sending", "finished_recving", "failed_recving")
PASSES, MORE_PASSES = 2, 4  # passes of the runner, empty ones too, until a load ends


class Storing(VllmPart, frozen=True):
    """`external_len` enables a KV connector, whose store has so many tokens of each prompt.

    With `late_loads` it loads them in the background.  If it `saves`, it gets the KV of each ended request, whose
    blocks are kept until then.  Each of the `workers`, the ranks of --tensor-parallel-size, makes its part of a load or
    a save in the background, and ends it at another time, or fails alone.
    """

    external_len: Annotated[int, within(0, MAX_CONTEXT_LEN)] = 0
    late_loads: bool = False
    saves: Annotated[bool, PartOf("external_len"), Drawn((False, False, True))] = False
    workers: Annotated[int, within(1, 8), PartOf("external_len"), Drawn((1, 2, 1, 3))] = 1

    needs = (Needs("workers", {"late_loads": (True,), "cpu_chunks": (0,)}),)

    server_need = "connector"
    waits = True
    hashes_blocks = True

    @classmethod
    def launched(cls, line: Line) -> dict[str, Any]:
        if connector.LMCACHE not in connector.connectors_of(line):
            return {}
        line.leave_out("the code of LMCache, for which a store has the first tokens of each prompt")
        return {"external_len": 2 * max(line.page_len, line.scaled(256))}  # two of its chunks

    @property
    def loads_within_a_step(self) -> bool:
        return self.is_on and not self.late_loads

    def check(self, config: VllmConfig) -> None:
        if self.late_loads and not self.is_on:
            raise InvalidConfig("late_loads is true without external_len, want false")
        if self.saves and not self.late_loads:
            raise InvalidConfig("saves is true without late_loads, want false")
        if self.loads_within_a_step and config.offload.is_on:
            raise InvalidConfig("late_loads is false with cpu_chunks and external_len, want true")

    def faults(self, config: VllmConfig) -> Mapping[str, str]:
        """A failed load within a step is reported by its blocks, which one group can have."""
        of_late = (LOAD_FAILS, LOAD_LATE, STORE_LATE)[: 2 + self.saves]
        can_fail = len(config.groups) == 1 and not config.drafts.is_on
        names = of_late if self.late_loads else (LOAD_FAILS,) * can_fail
        return {name: LOAD_FAULTS[name] for name in names}

    def reported(self, config: VllmConfig) -> Sequence[type[object]]:
        """A load that fails within a step rejects the pass in flight."""
        fails_within_a_step = self.loads_within_a_step and LOAD_FAILS in config.faults
        return CopiedIn, *[PrefixesCompared] * self.saves, *[Discarded] * fails_within_a_step

    def connectors(self, config: VllmConfig, release: VllmRelease) -> Named:
        store = importlib.import_module("swarden.harness.engines.vllm.standalone.store")  # with classes of the release
        kind = type(NAME, (WorkerSide, store.PromptStore), {})
        release.code("KVConnectorFactory")._registry[NAME] = lambda: kind
        return {
            NAME: {
                "len": self.external_len,
                "block_len": config.largest_block_len,
                "is_late": self.late_loads,
                "has_states": config.states.is_on,
                "saves": self.saves,
            }
        }

    def attach(self, engine: VllmEngine) -> Sequence[Part]:
        engine.runner.loads = loads = LateLoads(engine)
        if self.saves:
            engine.requests.is_handed_over = lambda _: True
        return [loads]


class EndedLoads(NamedTuple):
    """The requests whose loads ended, and those that have been `sent` to the store.

    A release gets either the requests whose loads failed, or the blocks that these loads did not write.
    """

    requests: set[str]
    failed: set[str]
    unwritten: set[int]
    sent: set[str]


@dataclass
class _UnderWay:
    """A load or a save, the number of passes until each worker ends it, and the workers in which it fails."""

    what: Any
    passes: list[int]
    is_written: bool = False
    failed: Sequence[int] = ()


def keeps_ended_requests(engine: VllmEngine) -> bool:
    """Whether a request that has ended keeps blocks for a save, which begins with the next step."""
    owner, tables = engine.requests.owner, engine.built.tables
    rids = [rid for table in tables for rid, blocks in table.req_to_blocks.items() if blocks]
    return any(owner(engine.built.number_of(rid)).kind == HANDOVER_KIND for rid in rids)


def _after_a_pass(under_way: Sequence[_UnderWay]) -> tuple[list[_UnderWay], list[_UnderWay]]:
    """Those that have not ended in all workers, and those that have."""
    return [copy for copy in under_way if max(copy.passes) > 0], [copy for copy in under_way if max(copy.passes) <= 0]


class LateLoads(ConnectorWorker, Part):
    """The worker's side of the store.

    Every second load is written at once, as by a transfer that overtakes passes in flight.
    """

    writes_blocks = True

    def __init__(self, engine: VllmEngine) -> None:
        super().__init__()
        self._engine, self._runner, self._faults = engine, engine.runner, engine.faults
        self._under_way: list[_UnderWay] = []
        self._begun = 0
        self._saves: list[_UnderWay] = []
        self._workers = range(engine.config.store.workers)
        self._aggregator = self._runner.release.code("KVOutputAggregator")(len(self._workers))

    def __bool__(self) -> bool:
        return bool(self._under_way or self._saves)

    @property
    def is_busy(self) -> bool:
        return keeps_ended_requests(self._engine)

    def save(self, saves: Iterable[BlockSave]) -> None:
        """Begin to send the KV of requests that have ended to the store."""
        self._saves += [_UnderWay(save, self._passes(STORE_LATE)) for save in saves]

    def received(self, flight: VllmPass, output: Any) -> None:
        """Begin the loads of an output of the scheduler; those that are not late belong to its pass."""
        self.save(getattr(output.kv_connector_metadata, "saves", ()))
        for load in getattr(output.kv_connector_metadata, "loads", ()):
            if load.is_late:
                self.begin(load)
                continue
            self._runner.copied_in(load.targets(self._runner.device.groups), number_of(load.rid))
            if self._fails():
                flight.failed.append(load)
            else:
                flight.loads.append(load)

    def computed(self, flight: VllmPass) -> Any:
        """A pass has been computed. Returns the connector's output for the scheduler; None if no load has ended."""
        if flight.failed:
            return self._runner.release.make("KVConnectorOutput", invalid_block_ids=flight.unwritten)
        outputs = [self._output(ended) for ended in self.end_pass()]
        whole = outputs[0]
        if len(outputs) > 1:  # as the executor puts them together
            results = [SimpleNamespace(kv_connector_output=output) for output in outputs]
            whole = self._aggregator.aggregate(results).kv_connector_output
        for name in TRANSFERS if whole is not None else ():  # the order of sets differs from process to process
            setattr(whole, name, sorted(getattr(whole, name, None) or (), key=number_of))
        return whole

    def _output(self, ended: EndedLoads) -> Any:
        if not ended.requests and not ended.sent:
            return None
        return self._runner.release.make(
            "KVConnectorOutput",
            finished_sending=ended.sent,
            finished_recving=ended.requests,
            failed_recving=ended.failed,
            invalid_block_ids=ended.unwritten,
        )

    def _fails(self) -> bool:
        return LOAD_FAILS in self._faults.known and self._faults.fires(LOAD_FAILS)

    def begin(self, load: BlockLoad) -> None:
        self._runner.copied_in(load.targets(self._runner.device.groups), number_of(load.rid))
        self._begun += 1
        self.loading[number_of(load.rid)] = load
        failed = [worker for worker in self._workers if self._fails()]
        is_early = bool(self._begun % 2) and not failed
        if is_early:
            self._runner.device.load(load)
        self._under_way.append(_UnderWay(load, self._passes(LOAD_LATE), is_early, failed))

    def _passes(self, fault: str) -> list[int]:
        """The number of passes until a load or a save ends in each worker, which this fault delays there."""
        return [PASSES + MORE_PASSES * self._faults.fires(fault) for _ in self._workers]

    def end_pass(self) -> list[EndedLoads]:
        """Count a pass; returns, for each worker, the loads and the saves that have ended there with it.

        KV is there, or read, when the last worker has ended; a load that has failed in some of them leaves none.
        """
        device = self._runner.device
        for copy in (*self._saves, *self._under_way):
            copy.passes = [count - 1 for count in copy.passes]
        by_worker = [self._ended_in(worker) for worker in self._workers]
        self._saves, saved = _after_a_pass(self._saves)
        for saving in saved:
            self._engine.log.notice(PrefixesCompared(0, POOL, device.save(saving.what)))
        self._under_way, ended = _after_a_pass(self._under_way)
        for loading in ended:
            if not loading.is_written and not loading.failed:
                device.load(loading.what)
            for block in loading.what.targets(device.groups) if 0 < len(loading.failed) < len(self._workers) else ():
                device.memory.fill(block, 0)
        return by_worker

    def _ended_in(self, worker: int) -> EndedLoads:
        ended = [copy for copy in self._under_way if copy.passes[worker] == 0]
        failed = [copy.what for copy in ended if worker in copy.failed]
        rids = {copy.what.rid for copy in ended}
        sent = {copy.what.rid for copy in self._saves if copy.passes[worker] == 0}
        if self._runner.release.has("failed_requests"):
            return EndedLoads(rids, {load.rid for load in failed}, set(), sent)
        groups = self._runner.device.groups
        return EndedLoads(rids, set(), {block for load in failed for block in load.targets(groups)}, sent)


class WorkerSide:
    """The worker's side of a PromptStore below a MultiConnector, with the loads in the background as its `worker`.

    Alone it has none: the runner reads the metadata.
    """

    worker: LateLoads

    def start_load_kv(self, *args: Any, **kwargs: Any) -> None:
        metadata = self._get_connector_metadata()  # type: ignore[attr-defined]  # of the release's class
        for load in metadata.loads:
            self.worker.begin(load)
        self.worker.save(metadata.saves)

    def get_finished(self, finished_req_ids: Collection[str]) -> tuple[Collection[str], Collection[str]]:
        [self._ended] = self.worker.end_pass()
        return self._ended.sent, self._ended.requests

    def get_transfer_results(self, finished_req_ids: Collection[str]) -> Any:
        results = super().get_transfer_results(finished_req_ids)  # type: ignore[misc]  # of the release's class
        results.failed_recving.update(self._ended.failed)
        return results

    def get_block_ids_with_load_errors(self) -> Collection[int]:
        return self._ended.unwritten


def with_loads(draw: Draw, config: VllmConfig) -> VllmConfig:
    """The configuration with a store."""
    external_len = config.shape.page_size * draw.one_of((4, 2, 8))
    late_loads = draw.one_of((False, True, True)) or config.state_mode == ALIGN
    saves = drawn(draw, Storing) if late_loads else {}
    return replaced(config, external_len=external_len, late_loads=late_loads, **saves)


def beside_cpu_memory(draw: Draw, config: VllmConfig) -> VllmConfig:
    """The configuration, perhaps with a store."""
    external_len = config.shape.page_size * draw.one_of((0, 0, 4, 2, 8))
    return replaced(config, external_len=external_len, late_loads=external_len > 0)
