"""Mooncake: a store of blocks behind the device, by their hashes, by the release's MooncakeStoreConnector.

Real: from 0.26.0: both sides of the `MooncakeStoreConnector`: look-ups, also in the background, jobs of saves and loads
with their queues and retries, blocks kept for saves, reset.
Stand-in: the `MooncakeDistributedStore` (values in memory, the least recently used leave it); what its threads do is
done behind a pass, in the order of each queue, every second job two passes later. Faults: `load.fails`,
`load.late`, `store.late`, `store.full`, `store.lost`.
Shows: a block saved under the hash of another one, or kept for ever; a load into blocks of another request.
"""

import queue
import sys
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from itertools import takewhile
from types import ModuleType, SimpleNamespace
from typing import Annotated, Any
from unittest import mock

from swarden.harness.core.errors import InvalidConfig
from swarden.harness.core.faults import FaultPlan
from swarden.harness.core.target import Draw
from swarden.harness.engines.vllm import boot, connector
from swarden.harness.engines.vllm.boot import VllmRelease
from swarden.harness.engines.vllm.connector import LOAD_FAILS, LOAD_FAULTS, LOAD_LATE, MOONCAKE, STORE_LATE
from swarden.harness.engines.vllm.layers import MAX_BLOCKS
from swarden.harness.engines.vllm.moves import HeldBlock
from swarden.harness.engines.vllm.parts import disk, offload, store
from swarden.harness.engines.vllm.parts.block_copies import PassEvent
from swarden.harness.engines.vllm.parts.copies import Copier, OffloadingSide
from swarden.harness.engines.vllm.parts.part import CACHED, Named, VllmConfig, VllmEngine, VllmPart
from swarden.harness.engines.vllm.transfers import BlockLoad
from swarden.harness.kit import settings
from swarden.harness.kit.launch import Line
from swarden.harness.kit.part import Part, off
from swarden.harness.kit.settings import Drawn, IfReleaseHas, Needs, PartOf, within
from swarden.harness.kit.stand_ins import Missing, Silent
from swarden.harness.kit.tags import TagMemory
from swarden.invariants.events import BACKUP_KIND, CopiedIn, Owner
from swarden.invariants.view import Snapshot

STORE_FULL, STORE_LOST = "store.full", "store.lost"
FAULTS = {
    STORE_FULL: "the store has no room for what is saved in it",
    STORE_LOST: "an object of the store is lost, and its key stays: each load of it fails",
} | {name: LOAD_FAULTS[name] for name in (LOAD_FAILS, LOAD_LATE, STORE_LATE)}
PACKAGE = f"vllm.{boot.MOONCAKE}"
NO_ROOM, NO_OBJECT = -200, -704  # codes of the store
ONE = SimpleNamespace(world_size=1, rank_in_group=0)
ONE_RANK: Mapping[str, Any] = {
    **dict.fromkeys(("get_dcp_group", "get_pcp_group", "get_pp_group"), lambda: ONE),
    "get_ip": str,
    "get_tensor_model_parallel_rank": int,
    "get_tensor_model_parallel_world_size": lambda: 1,
}
ENDS = ("finished_requests", "_completed_saves")  # of a thread, until the scheduler is told
PASSES, MORE_PASSES = 2, 4  # until a job begins


class Mooncake(VllmPart, frozen=True):
    """`mooncake_blocks` enables the MooncakeStoreConnector, whose store has room for so many blocks.

    With `late_look_ups` the scheduler does not wait for the answers of the store.
    """

    mooncake_blocks: Annotated[int, within(0, MAX_BLOCKS), IfReleaseHas("mooncake_store")] = 0
    late_look_ups: Annotated[bool, PartOf("mooncake_blocks"), Drawn((False, True))] = False

    needs = (
        Needs("mooncake_blocks", CACHED | {"sleeps": (False,)} | off(offload.Offload, store.Storing, disk.SecondTier)),
    )
    server_need = "Mooncake store"
    waits = True
    events = (CopiedIn,)

    @classmethod
    def launched(cls, line: Line) -> dict[str, Any]:
        """A line has the size of the store elsewhere; here it is twice as large as the pool."""
        extra = connector.connectors_of(line).get(MOONCAKE)
        blocks, late = offload.CPU_POOLS * line.pool_len // line.page_len, (extra or {}).get("lookup_async", False)
        return {} if extra is None else {"mooncake_blocks": blocks, "late_look_ups": late}

    def check_release(self, config: VllmConfig, release: VllmRelease) -> None:
        """Before 0.32.0 a load of several groups that fails ends the engine (issue 45474)."""
        if len(config.groups) > 1 and not release.has("failed_requests"):
            raise InvalidConfig(f"mooncake_blocks is set with windows or states, want neither for vllm {release.text}")

    def faults(self, config: VllmConfig) -> Mapping[str, str]:
        return FAULTS

    def inapplicable(self, config: VllmConfig, release: VllmRelease) -> Sequence[str]:
        """A running request may wait for blocks of saves (v1/core/sched/scheduler.py:926, vllm 0.33.0)."""
        return [*super().inapplicable(config, release), "running_requests_are_computed"]

    def can_reset(self, release: VllmRelease) -> bool:
        return True

    def connectors(self, config: VllmConfig, release: VllmRelease) -> Named:
        part = release.code("LookupKeyClient")
        vars(sys.modules[part.__module__]).update(
            ThreadPoolExecutor=LookUps, make_zmq_socket=lambda *args, **options: None
        )
        vars(sys.modules[f"{PACKAGE}.scheduler"])["LookupKeyClient"] = type("Client", (Client, part), {})
        return {MOONCAKE: {"lookup_async": self.late_look_ups}}

    def attach(self, engine: VllmEngine) -> Sequence[Part]:
        release, scheduler = engine.runner.release, engine.built.scheduler
        groups, side_of = scheduler.kv_cache_config, release.code("KVConnectorRole")
        threads = Threads(engine, self.mooncake_blocks)
        with threads.stand_ins(sys.modules[f"{PACKAGE}.worker"]):
            built = release.code("MooncakeStoreConnector")(scheduler.vllm_config, side_of.WORKER, groups)
            rows = release.torch.zeros((engine.config.num_blocks + 1, 1), dtype=release.torch.uint8)
            layers = [layer for group in groups.kv_cache_groups for layer in group.layer_names]
            built.register_kv_caches(dict.fromkeys(layers, rows))
        threads.serve(built.connector_worker, sys.modules[f"{PACKAGE}.worker"])
        engine.runner.loads = side = OffloadingSide(release, built, threads, engine.runner.loads)
        manager = scheduler.connector.connector_scheduler
        side.tiers = client = manager.client
        client.worker, client.threads, threads.loading = built.connector_worker, threads, side.loading
        if hasattr(manager, "_pinned_saves"):
            engine.moves.hold_copies(partial(held_blocks, manager))
        else:
            engine.requests.is_handed_over = lambda _: True
        return [Saves(engine)]


def held_blocks(manager: Any) -> Iterator[HeldBlock]:
    """The blocks of the device that saves keep, by the scheduler's side of the connector."""
    for job, (blocks, _) in manager._pinned_saves.items():
        yield from (HeldBlock(block, Owner(BACKUP_KIND, job + 1)) for block in blocks)


class Saves(Part):
    """The saves that keep blocks: each by its job, or before 0.28.0 those of a request that has ended."""

    def __init__(self, engine: VllmEngine) -> None:
        self._engine = engine

    @property
    def is_busy(self) -> bool:
        return store.keeps_ended_requests(self._engine)

    def views(self, snapshot: Snapshot) -> Snapshot:
        return replace(snapshot, is_loading=snapshot.is_loading or bool(self._engine.moves.copies))


class BlockStore:
    """The MooncakeDistributedStore of one core: blocks of tags by their keys, of which it has at most `room`.

    The memory of the device has so many `blocks`.
    """

    def __init__(self, memory: TagMemory, faults: FaultPlan, *, blocks: int, room: int) -> None:
        self._memory, self._faults, self._blocks, self._room = memory, faults, blocks, room
        self._values: dict[str, Sequence[int]] = {}  # the least recently used first
        self._first = self._size = 0  # of the memory of the device: its address, and the bytes of a block

    def setup(self, *args: Any, **options: Any) -> int:
        return 0

    def register_buffer(self, address: int, size: int) -> int:
        self._first, self._size = address, size // self._blocks
        return 0

    def batch_is_exist(self, keys: Sequence[str]) -> list[int]:
        return [int(self._use(key) is not None) for key in keys]

    def batch_put_from_multi_buffers(self, keys: Sequence[str], addresses: Any, *args: Any) -> list[int]:
        return [self._put(key, self._block(of_key)) for key, of_key in zip(keys, addresses, strict=True)]

    def batch_get_into_multi_buffers(self, keys: Sequence[str], addresses: Any, sizes: Any) -> list[int]:
        return [self._get(key, self._block(of_key)) for key, of_key in zip(keys, addresses, strict=True)]

    def remove_all(self, force: bool = False) -> int:
        self._values.clear()
        return 0

    def _block(self, addresses: Sequence[int]) -> int:
        [address] = addresses  # of the one layer
        return (address - self._first) // self._size

    def _use(self, key: str) -> Sequence[int] | None:
        """The value of a key, which is the most recently used one from now on."""
        value = self._values.pop(key, None)
        if value is not None:
            self._values[key] = value
        return value

    def _put(self, key: str, block: int) -> int:
        if self._faults.fires(STORE_FULL):
            return NO_ROOM
        if self._use(key) is None:  # a value is never replaced
            self._values[key] = self._memory.unit(block)
        if len(self._values) > self._room:
            del self._values[next(iter(self._values))]
        return 0

    def _get(self, key: str, block: int) -> int:
        value = self._use(key)
        if value and self._faults.fires(STORE_LOST):
            self._values[key] = value = ()
        if not value or self._faults.fires(LOAD_FAILS):
            return NO_OBJECT
        self._memory.put_unit(block, value)
        return self._size


class Jobs(queue.Queue[Any]):
    """The queue of a thread, which has as many jobs as are `due` now.

    For a new job `passes_of` gives the number of passes until it is done.
    """

    def __init__(self, passes_of: Callable[[Any], int]) -> None:
        super().__init__()
        self._passes_of, self._passes, self.due = passes_of, deque[int](), 0

    def put(self, item: Any, *args: Any) -> None:
        self._passes.append(self._passes_of(item))
        super().put(item)

    def get(self, *args: Any) -> Any:
        if not self.due:
            raise disk.NoTaskLeft
        self.due -= 1
        self._passes.popleft()
        return super().get(block=False)

    def count_pass(self, launch: int) -> None:
        """A pass has been computed; this is its launch."""
        self._passes = deque([count - 1 for count in self._passes])
        jobs = zip(self._passes, self.queue, strict=True)
        self.due = sum(1 for _ in takewhile(lambda queued: queued[0] < 0 and _after(queued[1]) <= launch, jobs))


def _after(job: Any) -> int:
    """The last pass before a job; 0 if it waits for none."""
    return 0 if job.current_event is None else job.current_event.after


class Threads(Copier):
    """The threads of the worker's side, one that saves and one that loads, whose jobs are done here.

    A save begins after the passes that were launched before it.
    """

    def __init__(self, engine: VllmEngine, room: int) -> None:
        super().__init__(engine, engine.runner.copied_in)
        self._store = BlockStore(self._memory, self._faults, blocks=engine.config.num_blocks + 1, room=room)
        self.loading: dict[int, BlockLoad] = {}
        self._added = 0
        self._threads: Sequence[Any] = ()

    def __bool__(self) -> bool:
        """Whether there is a job, or the end of one that has not been reported yet."""
        ends = [getattr(thread, name, None) for thread in self._threads for name in ENDS]
        return any(ends) or any(not thread.request_queue.empty() for thread in self._threads)

    @contextmanager
    def stand_ins(self, module: ModuleType) -> Iterator[None]:
        """Let the release build its worker's side here: one rank, no network, no thread."""
        plain = Missing(mode="embedded", enable_offload=False)
        names: dict[str, Any] = {
            **ONE_RANK,
            "rdma_utils": Silent(),
            "setup_mooncake_store": lambda *args: None,
            "MooncakeStoreConfig": SimpleNamespace(load_from_config=lambda: plain),
            "LookupKeyServer": lambda *args: None,
            "queue": SimpleNamespace(Queue=partial(Jobs, self._queued)),
        }
        package = SimpleNamespace(MooncakeDistributedStore=lambda: self._store, ReplicateConfig=Silent)
        with (
            mock.patch.dict(sys.modules, {"mooncake": package, "mooncake.store": package}),
            mock.patch.object(module.KVTransferThread, "start", lambda thread: thread.ready_event.set()),
            mock.patch.multiple(module, create=True, **names),
        ):
            yield

    def serve(self, worker: Any, module: ModuleType) -> None:
        """From now on do the jobs of this worker, whose close would wait for them."""
        worker.close = lambda: None
        self._threads = [worker.kv_send_thread, *worker.kv_recv_threads[:1]]  # the others have the same queue
        cuda = SimpleNamespace(Event=partial(PassEvent, self))
        vars(module)["torch"] = SimpleNamespace(Tensor=self._runner.release.torch.Tensor, cuda=cuda)
        vars(module)["logger"].exception = raise_own

    def advance(self, launch: int) -> None:
        """A pass has been computed: the jobs that are due behind it are done."""
        self.computed = launch
        for thread in self._threads:
            thread.request_queue.count_pass(launch)
            _work(thread)

    def end_saves(self) -> None:
        """Do all saves, as the release waits for them before a reset."""
        saves = self._threads[0]
        saves.request_queue.due = saves.request_queue.qsize()
        _work(saves)

    def _queued(self, job: Any) -> int:
        """A new job, of which a load is reported; returns the number of passes until it is done."""
        self._added += 1
        is_early = bool(self._added % 2)
        if job.load_spec is None:
            return PASSES * (not is_early) + MORE_PASSES * self._faults.fires(STORE_LATE)
        spec = job.load_spec
        load = BlockLoad(
            job.req_id, spec.vllm_cached_tokens, spec.kvpool_cached_tokens, (), job.block_ids, is_late=True
        )
        number = self._runner.number_of(load.rid)
        self.loading[number] = load
        self._runner.copied_in(load.targets(self._runner.device.groups), number)
        return PASSES * (not is_early) + MORE_PASSES * self._faults.fires(LOAD_LATE)


def _work(thread: Any) -> None:
    """Let a thread of the release do the jobs that are due."""
    with suppress(disk.NoTaskLeft):
        thread.run()


def raise_own(*args: Any) -> None:
    """In place of the log of an error, behind which a release goes on: an error of the stand-ins is raised."""
    error = own_error()
    if error is not None:
        raise error


def own_error() -> BaseException | None:
    """The error that is being handled, if it is one of the stand-ins."""
    _, error, trace = sys.exc_info()
    frames = [frame for frame, _ in traceback.walk_tb(trace)]
    return error if frames and frames[-1].f_globals["__name__"].startswith("swarden.") else None


class Answer(Future[Any]):
    """An answer of the store, which comes after so many questions for it."""

    def __init__(self, polls: int) -> None:
        super().__init__()
        self._polls = polls

    def done(self) -> bool:
        self._polls -= 1
        return self._polls < 0


class LookUps:
    """The executor of look-ups; every second one ends a step later."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._begun = 0

    def submit(self, function: Callable[..., Any], *args: Any) -> Answer:
        self._begun += 1
        answer = Answer(self._begun % 2)
        answer.set_result(function(*args))
        return answer


class Client:
    """The client of the look-ups without a socket, as a mixin for the release's class."""

    worker: Any
    threads: Threads
    futures: Mapping[str, Any]

    def __bool__(self) -> bool:
        """Whether a request may wait for an answer."""
        return bool(self.futures)

    def _lookup(self, num_tokens: int, block_hashes: Sequence[Any]) -> Any:
        return self.worker.lookup(num_tokens, block_hashes)

    def _reset(self) -> bool:
        self.threads.end_saves()
        self.worker.store.remove_all(force=True)
        return True


def with_mooncake(draw: Draw, config: VllmConfig) -> VllmConfig:
    """The configuration with a store of blocks."""
    room = draw.one_of((40, 10, 200))
    return settings.replaced(config, sleeps=False, mooncake_blocks=room, **settings.drawn(draw, Mooncake))
