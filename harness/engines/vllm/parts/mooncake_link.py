"""The network under the MooncakeConnector of a pair, in memory: its event loop, its sockets and its transfer engine.

Both sides of the connector are the release's own, with their coroutines.  One loop without a thread has them all: it
runs with each pass of a side and behind each step of the other one, and its time is that of the pair.  A write copies
blocks of tags; every second one does so before it is reported, and so overtakes the passes in flight.
"""

import asyncio
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any
from unittest import mock

from swarden.harness.core.faults import FaultPlan
from swarden.harness.engines.vllm import link
from swarden.harness.engines.vllm.connector import ReleasedSide
from swarden.harness.engines.vllm.front import number_of
from swarden.harness.engines.vllm.parts.mooncake import ONE_RANK, own_error
from swarden.harness.engines.vllm.parts.part import VllmEngine
from swarden.harness.engines.vllm.passes import VllmPass
from swarden.harness.engines.vllm.transfers import BlockLoad
from swarden.harness.kit.clock import EngineClock
from swarden.harness.kit.stand_ins import Silent

FAULTS = {
    link.LINK_FAILS: "a write of KV to the decode side fails behind the first half of its blocks",
    link.LINK_DROP: "an answer of the prefill side is lost, and the decode side gives up after a time",
    link.LINK_DELAY: "a write of KV to the decode side takes longer",
}
FAILED = -1  # the code of a write
TIMES = dict.fromkeys(("VLLM_MOONCAKE_ABORT_REQUEST_TIMEOUT", "VLLM_MOONCAKE_CONNECTOR_TIMEOUT"), link.LEASE_S)


async def wait(tasks: Sequence[Any], **options: Any) -> list[list[Any]]:
    """As asyncio.wait, whose sets have another order in each process."""
    done_and_pending = await asyncio.wait(tasks, **options)
    return [[task for task in tasks if task in some] for some in done_and_pending]


class Loop(asyncio.BaseEventLoop):
    """The event loop of both sides, and the writes that are under way."""

    _ready: Any
    _scheduled: Any

    def __init__(self, clock: EngineClock) -> None:
        super().__init__()
        self._clock, self._selector = clock, SimpleNamespace(select=lambda timeout: ())
        self._errors: list[BaseException] = []
        self._polled: list[asyncio.Future[None]] = []
        self.begun: tuple[int, Callable[[], object]] = 0, int  # the last write: its polls, and its copy
        vars(self).update(run_in_executor=self._write)
        self.set_exception_handler(lambda loop, context: None)  # called for tasks that wait when all ends

    def __del__(self, *args: Any) -> None: ...

    def _process_events(self, events: Any) -> None: ...

    def _write_to_self(self) -> None: ...

    def time(self) -> float:
        return self._clock.now_s

    def note(self, *args: Any) -> None:
        """In place of the log of errors, behind which a release goes on: keep those of the stand-ins."""
        error = own_error()
        if error is not None:
            self._errors.append(error)

    @staticmethod
    def run_in(coroutine: Coroutine[Any, Any, Any], loop: "Loop") -> asyncio.Task[Any]:
        """In place of asyncio.run_coroutine_threadsafe: the thread of a loop is faster than its caller."""
        task = loop.create_task(coroutine)
        loop.advance()
        return task

    def advance(self) -> None:
        """Run until all tasks wait for a poll or for a time."""
        while self._ready or any(timer.when() <= self.time() for timer in self._scheduled):
            self.call_soon(self.stop)
            self.run_forever()
        if self._errors:
            raise self._errors.pop()

    async def _write(self, executor: Any, function: Callable[..., int], *args: Any) -> int:
        """In place of run_in_executor: a write, by a method of the connector."""
        code = function(*args)
        polls, copy = self.begun
        for _ in range(polls):
            self._polled.append(self.create_future())
            await self._polled[-1]
        copy()
        return code

    def poll(self) -> None:
        """Go on with the writes."""
        polled, self._polled = self._polled, []
        for future in polled:
            future.set_result(None)
        self.advance()


class MooncakeLink(link.VllmLink):
    """What both sides share, with their loop and the questions to each address."""

    def __init__(self) -> None:
        super().__init__()
        self.loop, self.inboxes = Loop(self.clock), dict[str, asyncio.Queue[tuple[Asker, bytes]]]()
        self.num_questions = 0  # of the decode side


class TransferEngine(link.Agent):
    """Mooncake's transfer engine of one side."""

    loop: Loop
    caches: Sequence[Any] = ()  # tensors, whose addresses name blocks

    def initialize(self, *args: Any) -> int:
        return 0

    get_rpc_port = batch_register_memory = initialize

    def batch_transfer_sync_write(self, session: str, sources: Any, targets: Any, sizes: Sequence[int]) -> int:
        other = self._link.agents[session.partition(":")[0]]
        assert isinstance(other, TransferEngine)
        sent = [block for first, size in zip(sources, sizes, strict=True) for block in self._blocks(first, size)]
        written = [block for first, size in zip(targets, sizes, strict=True) for block in other._blocks(first, size)]
        polls = link.POLLS + link.MORE_POLLS * self._faults.fires(link.LINK_DELAY)
        fails = self._faults.fires(link.LINK_FAILS)
        other.begun(written)
        many = len(sent) // 2 if fails else len(sent)
        copy = partial(self.copy, link.Transfer(self.name, sent[:many], other.name, written[:many]))
        self._begun += 1
        if self._begun % 2:
            copy()
        self.loop.begun = polls, copy
        return FAILED if fails else 0

    def _blocks(self, first: int, size: int) -> Iterator[int]:
        [cache] = [cache for cache in self.caches if 0 <= first - cache.data_ptr() < cache.nbytes]
        offset, block_size = first - cache.data_ptr(), cache.nbytes // len(cache)
        yield from range(offset // block_size, -(-(offset + size) // block_size))


class Sockets:
    """The ZeroMQ context of one side, and the socket on which it answers."""

    def __init__(self, shared: MooncakeLink, faults: FaultPlan) -> None:
        self.shared, self._faults = shared, faults

    async def send_multipart(self, parts: tuple["Asker", bytes]) -> None:
        asker, answer = parts
        if not self._faults.fires(link.LINK_DROP):
            asker.put_nowait(answer)


class Asker(asyncio.Queue[bytes]):
    """A socket of a decode side for one question: the answers to it."""

    def __init__(self, sockets: Sockets, address: str, *args: Any, **options: Any) -> None:
        super().__init__()
        self._shared, self._address, self._timeout_s = sockets.shared, address, 0.0

    def __enter__(self) -> "Asker":
        self._shared.num_questions += 1
        return self

    def __exit__(self, *error: object) -> None:
        self._shared.num_questions -= 1

    def setsockopt(self, option: Any, timeout_ms: float) -> None:
        self._timeout_s = timeout_ms / 1000

    async def send(self, question: bytes) -> None:
        self._shared.inboxes[self._address].put_nowait((self, question))

    async def recv(self) -> bytes:
        return await asyncio.wait_for(self.get(), self._timeout_s)


class MooncakeSide(ReleasedSide):
    """The worker's side of the connector of one side of a pair, whose side `other` it has met already."""

    def __init__(
        self, engine: VllmEngine, shared: MooncakeLink, role: str, other: str, copied: Callable[[link.Transfer], None]
    ) -> None:
        release, scheduler = engine.runner.release, engine.built.scheduler
        self._shared, self._role, self._requests = shared, role, scheduler.requests
        self._engine = TransferEngine(role, shared, engine, copied)
        self._engine.loop, groups = shared.loop, scheduler.kv_cache_config
        super().__init__(release, self._built(release, scheduler.vllm_config, groups, engine.faults))
        self._worker, kind = self._connector.connector_worker, release.torch.uint8
        layers = [(name, group.kv_cache_spec) for group in groups.kv_cache_groups for name in group.layer_names]
        num_blocks = engine.config.num_blocks + 1
        shapes = {name: (num_blocks, 1, 1, spec.page_size_bytes) for name, spec in layers}
        caches = {name: release.torch.empty(shape, dtype=kind) for name, shape in shapes.items()}
        self._engine.caches = [*caches.values()]
        self._connector.register_kv_caches(caches)
        self._worker._remote_agents[other] = {0: {0: f"tcp://{other}"}}
        self._worker._tp_size[other] = 1
        self.writes_blocks = engine.config.pair.receives
        self._has_states = [group.has_states for group in engine.config.groups]  # null blocks of states are not sent

    def _built(self, release: Any, vllm_config: Any, groups: Any, faults: FaultPlan) -> Any:
        """Let the release build its worker's side: one rank, no network, no thread."""
        part = release.code("MooncakeConnectorWorker")
        module = sys.modules[part.__module__]

        async def listen(worker: Any, is_ready: threading.Event) -> None:
            self._shared.inboxes[f"tcp://{self._role}"] = worker.sender_worker_queue
            for _ in range(worker.num_sender_tasks):
                self._shared.loop.create_task(worker._sender_worker(worker.async_zmq_ctx))
            is_ready.set()

        methods = {
            "_mooncake_sender_listener": listen,
            "_sync_block_size_with_kernel": lambda worker: None,
            "shutdown": lambda worker: None,
        }
        loops = {"run_coroutine_threadsafe": Loop.run_in, "new_event_loop": lambda: self._shared.loop, "wait": wait}
        backend = SimpleNamespace(get_name=str, get_kv_cache_shape=lambda **sizes: (1, 1, 1, 1))
        vars(module).update(
            asyncio=SimpleNamespace(**{**vars(asyncio), **loops}),
            envs=SimpleNamespace(**TIMES),
            make_zmq_socket=Asker,
            threading=SimpleNamespace(Thread=Silent, Event=threading.Event),
            zmq=SimpleNamespace(asyncio=Silent(), ContextTerminated=ConnectionAbortedError, DEALER=0, RCVTIMEO=0),
        )
        module.zmq.asyncio.Context = partial(Sockets, self._shared, faults)
        module.logger.error = self._shared.loop.note
        names = {
            **ONE_RANK,
            "MooncakeConnectorWorker": type("Worker", (part,), methods),
            "TransferEngine": lambda: self._engine,
            "ThreadPoolExecutor": Silent,
            "current_platform": Silent(),
            "get_current_attn_backends": lambda config: [backend],
            "get_ip": lambda: self._role,
            "get_kv_cache_layout": str,
            "should_launch_bootstrap_server": lambda config: False,
        }
        with (
            mock.patch.object(release.torch.accelerator, "current_device_index", int),
            mock.patch.multiple(module, create=True, **names),
        ):
            return release.code("MooncakeConnector")(vllm_config, release.code("KVConnectorRole").WORKER, groups)

    def __bool__(self) -> bool:
        """Whether this side waits for an answer, or for the scheduler to get it."""
        return (self.writes_blocks and self._shared.num_questions > 0) or super().__bool__()

    def received(self, flight: VllmPass, output: Any) -> None:
        """As execute_model: loads begin and end without regard to the passes."""
        metadata = output.kv_connector_metadata
        for pulls in metadata.reqs_to_recv.values():
            for rid, pull in pulls.items():
                if any(pull.local_block_ids):
                    end = self._requests[rid].num_computed_tokens
                    groups = zip(pull.local_block_ids, self._has_states, strict=True)
                    tables = [[*filter(None, blocks)] if has_states else blocks for blocks, has_states in groups]
                    self.loading[number_of(rid)] = BlockLoad(rid, 0, end, (), tables, is_late=True)
        self._connector.bind_connector_metadata(metadata)
        self._connector.start_load_kv(None)
        self._shared.loop.poll()
        self.write()
        self._outputs[id(flight)] = self.report(set())

    def write(self) -> None:
        """The other side has made a step."""
        self._shared.loop.advance()
        steps = self._shared.steps_since_read[self._role]
        for rid in self._worker.finished_recving_reqs:
            steps.setdefault(number_of(rid), -1)  # it was read since the last step of this side
