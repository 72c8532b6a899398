"""LMCache: chunks of KV in CPU memory behind the device, by the `LMCacheConnectorV1`.

Real: on 0.33.0, of LMCache 0.5.6: both sides of the connector, its look-ups, pins, loads and saves within a step, its
keys, CPU memory and allocator.
Stand-in: its GPU connector (copies of tags, in the order of the passes), its sockets, its threads.
Shows: chunks that stay pinned, or lose the pin of another request; KV that is found under the key of another prefix.
"""

import importlib
import os
import re
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from types import SimpleNamespace
from typing import Annotated, Any

from swarden.harness.core.errors import InvalidConfig
from swarden.harness.core.target import Draw
from swarden.harness.engines.vllm.boot import VllmRelease
from swarden.harness.engines.vllm.connector import LMCACHE, ReleasedSide
from swarden.harness.engines.vllm.front import number_of
from swarden.harness.engines.vllm.layers import MAX_BLOCKS
from swarden.harness.engines.vllm.parts import disk, mooncake, offload, store
from swarden.harness.engines.vllm.parts.drafts import Drafts
from swarden.harness.engines.vllm.parts.part import Named, VllmConfig, VllmEngine, VllmPart
from swarden.harness.engines.vllm.parts.states import States
from swarden.harness.engines.vllm.parts.streaming import Streaming
from swarden.harness.engines.vllm.passes import VllmPass
from swarden.harness.kit import settings
from swarden.harness.kit.owners import UnitFacts, pool_view
from swarden.harness.kit.part import Part, off
from swarden.harness.kit.settings import Drawn, Needs, OneOf, PartOf, within
from swarden.harness.kit.stand_ins import Silent
from swarden.invariants.events import CopiedIn
from swarden.invariants.view import Fence, Snapshot

POOL = "chunks"
CHUNK_BYTES = 4096  # that the allocator takes for a chunk
CHUNK_LENS = (4, 2, 8, 16)  # tokens; such chunks have no more bytes
NO_LAUNCH = -1  # for which a pin waits
ONE_RANK = SimpleNamespace(is_last_rank=True, broadcast=None, broadcast_object=None)
SERVICES = (
    *("maybe_create_offload_server", "maybe_create_runtime_plugin_launcher"),
    *("maybe_create_internal_api_server", "maybe_create_health_monitor"),
)
ENGINES = ("_instances", "_cfgs", "_metadatas", "_stat_loggers")  # of this process, by name


class LmCache(VllmPart, frozen=True):
    """`lmcache_chunks` enables LMCache, whose CPU memory has room for so many chunks of `lmcache_chunk_len` tokens.

    With `saves_answers` it saves the KV of outputs, too.
    """

    lmcache_chunks: Annotated[int, within(0, MAX_BLOCKS)] = 0
    lmcache_chunk_len: Annotated[int, OneOf(CHUNK_LENS), PartOf("lmcache_chunks"), Drawn(CHUNK_LENS)] = 4
    saves_answers: Annotated[bool, PartOf("lmcache_chunks"), Drawn((False, True))] = False

    needs = (
        Needs(
            "lmcache_chunks",
            {"windows": ((),), "sleeps": (False,)}
            | off(offload.Offload, store.Storing, disk.SecondTier, mooncake.Mooncake, States, Drafts, Streaming),
        ),
    )
    server_need = "LMCache"
    waits = True
    events = (CopiedIn,)

    def check_release(self, config: VllmConfig, release: VllmRelease) -> None:
        if not release.has("lmcache"):
            how = "it is driven beside 0.33.0; remove and install that release again"
            raise InvalidConfig(f"lmcache_chunks is set, but no LMCache is beside vllm {release.text}: {how}")

    def connectors(self, config: VllmConfig, release: VllmRelease) -> Named:
        serve_in_process()
        extra = {
            "chunk_size": self.lmcache_chunk_len,
            "max_local_cpu_size": self.lmcache_chunks * CHUNK_BYTES / (1 << 30),
            "save_decode_cache": self.saves_answers,
        }
        return {LMCACHE: {f"lmcache.{name}": value for name, value in extra.items()}}

    def attach(self, engine: VllmEngine) -> Sequence[Part]:
        release, scheduler = engine.runner.release, engine.built.scheduler
        role, create = release.code("KVConnectorRole").WORKER, release.code("KVConnectorFactory").create_connector
        _namespace_of("v1.gpu_connector")["CreateGPUConnector"] = lambda *args, **options: Copies(engine)
        built = create(scheduler.vllm_config, role, scheduler.kv_cache_config)
        built.register_kv_caches({"0": release.torch.zeros(1)})
        worker, asker = built._lmcache_engine, scheduler.connector._lmcache_engine.lookup_client
        asker.transport.server = worker.lookup_server
        engine.runner.loads = side = LmCacheSide(engine, built)
        return [Chunks(engine, worker.lmcache_engine, side)]


def _namespace_of(module: str) -> dict[str, Any]:
    return vars(importlib.import_module(f"lmcache.{module}"))


def serve_in_process() -> None:
    """Let LMCache build its two sides anew: with its settings alone, in one rank, without sockets and threads."""
    os.environ["LMCACHE_DISABLE_BANNER"] = "1"

    def nothing(*args: Any, **options: Any) -> None: ...

    _namespace_of("integration.vllm.utils").update(_config_instance=None, vllm_layout_hints=nothing)
    _namespace_of("integration.vllm.vllm_v1_adapter")["get_pp_group"] = lambda: ONE_RANK
    vars(importlib.import_module("vllm.distributed.parallel_state"))["get_tp_group"] = lambda: ONE_RANK
    _namespace_of("v1.periodic_thread")["PeriodicThread"].start = nothing
    for module in ("storage_backend.storage_manager", "lookup_client.lmcache_lookup_client"):
        of_module = _namespace_of(f"v1.{module}")
        of_module["threading"] = SimpleNamespace(**{**vars(importlib.import_module("threading")), "Thread": Unstarted})
    _namespace_of("v1.cache_engine").update(multiprocessing=Silent(), InitializeUsageContext=nothing)
    for name in ENGINES:
        getattr(_namespace_of("v1.cache_engine")["LMCacheEngineBuilder"], name).clear()
    factory = _namespace_of("v1.lookup_client.factory")["LookupClientFactory"]
    factory._create_zmq_client_transport = factory._create_zmq_server_transport = staticmethod(Transport)
    for name in SERVICES:
        setattr(_namespace_of("integration.vllm.vllm_service_factory")["VllmServiceFactory"], name, nothing)


class Unstarted:
    """A thread whose work is done here, if at all."""

    def __init__(self, target: Any, **options: Any) -> None:
        self.run = target

    def start(self) -> None: ...


class Transport:
    """The client's or the server's end of the socket for look-ups: the server answers at once."""

    world_size = 1
    server: Any

    def __init__(self, *args: Any) -> None:
        self.asked, self.answer = deque[Any](), b""

    def send_and_recv_all(self, message: Any) -> list[bytes]:
        end = self.server.transport
        end.asked.append(message)
        with suppress(disk.NoTaskLeft):
            self.server.thread.run()
        return [end.answer]

    def recv_request(self) -> Any:
        if not self.asked:
            raise disk.NoTaskLeft
        return b"", self.asked.popleft()

    def send_response(self, identity: bytes, response: bytes) -> None:
        self.answer = response


class Copies:
    """The GPU connector: it copies tags between the slots of a request and chunks, and no token that vLLM has."""

    def __init__(self, engine: VllmEngine) -> None:
        self._memory = engine.runner.device.memory

    def batched_from_gpu(
        self, chunks: Sequence[Any], starts: Any, ends: Any, *, slot_mapping: Any, **more: Any
    ) -> None:
        for chunk, start, end in zip(chunks, starts, ends, strict=True):
            chunk.tags = self._memory.read(slot_mapping[start:end].tolist())

    def batched_to_gpu(self, chunks: Sequence[Any], starts: Any, ends: Any, *, slot_mapping: Any, **more: Any) -> None:
        for chunk, start, end in zip(chunks, starts, ends, strict=True):
            first = min(end, max(start, more["vllm_cached_tokens"]))
            self._memory.write(slot_mapping[first:end].tolist(), chunk.tags[first - start :])


class LmCacheSide(ReleasedSide):
    """The worker's side of the connector, which works when a pass is computed: loads before it, saves behind it."""

    writes_blocks = True

    def __init__(self, engine: VllmEngine, built: Any) -> None:
        super().__init__(engine.runner.release, built)
        self._runner, device = engine.runner, engine.runner.device
        self._block_len = device.groups[0].block_len
        self.to_come: dict[int, Any] = {}  # outputs of the scheduler, by their passes
        vars(device)["load"] = self._load

    def received(self, flight: VllmPass, output: Any) -> None:
        self.to_come[id(flight)] = output
        flight.loads.append(output)
        for meta in output.kv_connector_metadata.requests:
            if (spec := meta.load_spec) is not None and spec.can_load:
                slots = meta.slot_mapping[spec.vllm_cached_tokens : spec.lmcache_cached_tokens].tolist()
                self._runner.copied_in(dict.fromkeys(slot // self._block_len for slot in slots), number_of(meta.req_id))

    def _load(self, output: Any) -> None:
        self._connector.bind_connector_metadata(output.kv_connector_metadata)
        self._connector.start_load_kv(SimpleNamespace(attn_metadata=() if output.num_scheduled_tokens else None))

    def computed(self, flight: VllmPass) -> Any:
        output = self.to_come.pop(id(flight))
        if output.num_scheduled_tokens:
            self._connector.wait_for_save()
        self._connector.clear_connector_metadata()
        return self.report(output.finished_req_ids)


class Chunks(Part):
    """The chunks in CPU memory, each with its pins."""

    def __init__(self, engine: VllmEngine, lmcache: Any, side: LmCacheSide) -> None:
        self._scheduler, self._side = engine.built.scheduler, side
        self._cached = lmcache.storage_manager.local_cpu_backend.hot_cache
        self._pins: Mapping[str, Mapping[str, Sequence[Any]]] = lmcache.lookup_pins
        self._allocator = lmcache.storage_manager.local_cpu_backend.memory_allocator.pin_allocator
        self._below_zero = dict[int, UnitFacts]()  # chunks that were unpinned too often
        _namespace_of("v1.memory_management")["logger"] = Silent(warning=self._warned, error=self._warned)

    def _warned(self, text: str, *args: Any) -> None:
        """LMCache sets a count that has fallen below zero back to 0, and warns of it."""
        if "negative" in text:
            address, count, *_ = map(int, re.findall(r"-?\d+", text % args))
            self._below_zero[address // CHUNK_BYTES + 1] = UnitFacts((), count, True)

    def views(self, snapshot: Snapshot) -> Snapshot:
        facts = {_unit(chunk): UnitFacts((), chunk.meta.pin_count, True) for chunk in self._cached.values()}
        facts, self._below_zero = facts | self._below_zero, {}
        space = self._allocator.address_manager
        free = [
            address // CHUNK_BYTES + 1
            for block in space._explicit_list
            for address in range(block.start, block.start + block.size, CHUNK_BYTES)
        ]
        queue = [*free, *[unit for unit, of_chunk in facts.items() if not of_chunk.num_readers]]
        capacity = self._allocator.buffer.numel() // CHUNK_BYTES
        view = replace(pool_view(POOL, "chunk", facts, queue, self._read()), capacity=capacity, outlasts_drains=True)
        counters = snapshot.counters
        if counters is not None:
            num_free = capacity - space.total_allocated_size // CHUNK_BYTES
            counters = counters._replace(free={**counters.free, POOL: num_free})
        return replace(snapshot, pools=(*snapshot.pools, view), counters=counters)

    def _read(self) -> list[Fence]:
        """The pins of requests, by LMCache's own list, until the worker's side knows that a request has ended."""
        needed = {*self._scheduler.requests, *self._scheduler.finished_req_ids}
        for output in self._side.to_come.values():
            needed.update(output.finished_req_ids, [meta.req_id for meta in output.kv_connector_metadata.requests])
        keys = [
            [key for of_place in self._pins[rid].values() for key in of_place]
            for rid in sorted(needed & self._pins.keys())
        ]
        cached = self._cached
        return [Fence(NO_LAUNCH, (), [_unit(cached[key]) for key in of_rid if key in cached]) for of_rid in keys]


def _unit(chunk: Any) -> int:
    number: int = chunk.meta.address // CHUNK_BYTES + 1
    return number


def with_lmcache(draw: Draw, config: VllmConfig) -> VllmConfig:
    """The configuration with LMCache, which serves one group of layers."""
    one_group = {"windows": (), "window_block_sizes": (), "windows_first": False, "sleeps": False}
    chunks = draw.one_of((20, 8, 80))
    return settings.replaced(config, **one_group, lmcache_chunks=chunks, **settings.drawn(draw, LmCache))
