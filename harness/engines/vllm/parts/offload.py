"""Offloading: CPU memory behind the device, by a connector of the release.

Real: from 0.26.0: both sides of the `OffloadingConnector`, CPU memory with LRU or ARC, flushes, reset; Mamba states as
chunks; with `external_len` both sides of the `MultiConnector` over this connector and a store.
Stand-in: an `OffloadingWorker` (`copies.py`) that copies tags, ordered with the passes as the streams are. Faults:
`load.late`, `store.late`; `store.fails` only in op-logs, because every release dies of it (pull 52838).
Shows: a wrong chunk is read, a store that still reads the blocks of a load.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any

from swarden.harness.core.errors import InvalidConfig
from swarden.harness.core.target import Draw
from swarden.harness.engines.vllm.boot import VllmRelease
from swarden.harness.engines.vllm.connector import (
    LOAD_FAULTS,
    LOAD_LATE,
    OFFLOADING,
    SIMPLE,
    STORE_LATE,
    children_of,
    connectors_of,
)
from swarden.harness.engines.vllm.layers import MAX_BLOCKS
from swarden.harness.engines.vllm.parts import disk, store
from swarden.harness.engines.vllm.parts.block_copies import BlockCopier, BlockCopies, let_copy
from swarden.harness.engines.vllm.parts.copies import FATAL, Copier, OffloadingSide
from swarden.harness.engines.vllm.parts.part import CACHED, Named, VllmConfig, VllmEngine, VllmPart
from swarden.harness.engines.vllm.requests import FindableBlocks
from swarden.harness.kit.launch import Line, count_in
from swarden.harness.kit.part import Part, off
from swarden.harness.kit.settings import Drawn, IfReleaseHas, Needs, OneOf, PartOf, drawn, replaced, within
from swarden.invariants.events import CopiedIn
from swarden.invariants.view import Snapshot

LRU, ARC = "lru", "arc"
CHUNKS, EAGER, LAZY = "chunks", "eager", "lazy"  # offloaders
CPU_POOLS = 2  # the size of CPU memory, in pools of the device, for a launch line
BLOCK_BYTES = 4096  # of a block in all layers; the connector aligns chunks to it
ENOUGH_BYTES = 1 << 40


class Offload(VllmPart, frozen=True):
    """`cpu_chunks` enables the offloading connector: so many chunks of CPU memory, each for `chunk_blocks` blocks.

    With an `offloader` "eager" or "lazy" it is the SimpleCPUOffloadConnector in this mode, whose chunks are blocks.
    `eviction` is by "lru" or "arc".  With `sync_loads` it loads within the step.  Beside a store both are below the
    release's MultiConnector.
    """

    cpu_chunks: Annotated[int, within(0, MAX_BLOCKS), IfReleaseHas("cpu_memory")] = 0
    offloader: Annotated[str, OneOf((CHUNKS, EAGER, LAZY)), PartOf("cpu_chunks")] = CHUNKS
    chunk_blocks: Annotated[int, within(1, 16), PartOf("cpu_chunks")] = 1
    eviction: Annotated[str, OneOf((LRU, ARC)), PartOf("cpu_chunks"), Drawn((LRU, ARC))] = LRU
    sync_loads: Annotated[bool, PartOf("cpu_chunks"), Drawn((False, True))] = False

    needs = (
        Needs("cpu_chunks", CACHED),
        Needs("offloader", {"chunk_blocks": (1,), "eviction": (LRU,), "sync_loads": (False,)} | off(disk.SecondTier)),
        Needs("offloader", off(store.Storing) | {"cpu_chunks": range(1, MAX_BLOCKS)}),
    )
    server_need = "host tier"
    waits = True
    events = (CopiedIn,)

    @classmethod
    def launched(cls, line: Line) -> dict[str, Any]:
        """A line has the size of the CPU memory in bytes; here it is twice as large as the pool."""
        extras, chunks = connectors_of(line), CPU_POOLS * line.pool_len // line.page_len
        if SIMPLE in extras:
            return {"cpu_chunks": chunks, "offloader": LAZY if extras[SIMPLE].get("lazy_offload") else EAGER}
        if OFFLOADING not in extras:
            return {}
        extra, option = extras[OFFLOADING], "kv-transfer-config"
        usual = count_in(line, option, extra, "block_size", line.page_len) // line.page_len
        blocks = count_in(line, option, extra, "blocks_per_chunk", max(1, usual))
        return {"cpu_chunks": chunks // blocks, "chunk_blocks": blocks, "eviction": extra.get("eviction_policy", LRU)}

    @property
    def num_host_blocks(self) -> int:
        """The blocks of CPU memory."""
        return self.cpu_chunks * self.chunk_blocks

    @property
    def extra_config(self) -> dict[str, Any]:
        """The kv_connector_extra_config, so that CPU memory has `cpu_chunks` chunks."""
        return {
            "cpu_bytes_to_use": self.num_host_blocks * BLOCK_BYTES,
            "blocks_per_chunk": self.chunk_blocks,
            "eviction_policy": self.eviction,
            "sync_load_budget_bytes": ENOUGH_BYTES if self.sync_loads else 0,
        }

    def faults(self, config: VllmConfig) -> Mapping[str, str]:
        """Of the fatal ones, which traffic does not draw, every release dies."""
        return {name: LOAD_FAULTS[name] for name in self.uses(config)} | (FATAL if self.offloader == CHUNKS else {})

    def uses(self, config: VllmConfig) -> Sequence[str]:
        return LOAD_LATE, STORE_LATE

    def shape(self, config: VllmConfig) -> Mapping[str, Any]:
        return {"uses_before_backup": 1}

    def check_release(self, config: VllmConfig, release: VllmRelease) -> None:
        if self.offloader == CHUNKS and not release.has("offloading"):
            raise InvalidConfig(
                f'offloader is "chunks" with cpu_chunks, want "eager" or "lazy" for vllm {release.text}'
            )

    def inapplicable(self, config: VllmConfig, release: VllmRelease) -> Sequence[str]:
        """Behind the fix of `stores-preempt-a-request-for-ever` a running request waits for the blocks of stores."""
        waits = ("running_requests_are_computed",) if self.offloader == EAGER else ()
        return [*super().inapplicable(config, release), *waits]

    def can_reset(self, release: VllmRelease) -> bool:
        return self.offloader == CHUNKS or release.has("simple_reset")

    def arguments(self, config: VllmConfig, release: VllmRelease) -> Named:
        """The memory of the device, from which the connector takes the bytes of a block."""
        layers = [f"{number}" for number, _ in enumerate(config.groups)]
        sizes = {"size": BLOCK_BYTES * (config.num_blocks + 1), "layer_stride": 0, "block_stride": 0}
        tensor = release.make("KVCacheTensor", shared_by=layers, layers=layers, **sizes)
        return {"KVCacheConfig": {"kv_cache_tensors": [tensor]}}

    def connectors(self, config: VllmConfig, release: VllmRelease) -> Named:
        if self.offloader == CHUNKS:
            return {OFFLOADING: self.extra_config}
        return {SIMPLE: {**self.extra_config, "lazy_offload": self.offloader == LAZY}}

    def attach(self, engine: VllmEngine) -> Sequence[Part]:
        release, runner, scheduler = engine.runner.release, engine.runner, engine.built.scheduler
        role, create = release.code("KVConnectorRole").WORKER, release.code("KVConnectorFactory").create_connector
        connector = create(scheduler.vllm_config, role, scheduler.kv_cache_config)
        if self.offloader == CHUNKS:
            copier = Copier(engine, runner.loaded_in_order)
            children_of(connector)[0].connector_worker.worker = copier
        else:
            copier = let_copy(connector, BlockCopier(engine, runner.copied_in))
        runner.loads = side = OffloadingSide(release, connector, copier, runner.loads)
        if self.offloader != CHUNKS:
            return [BlockCopies(engine, side, is_lazy=self.offloader == LAZY)]
        return [Chunks(engine)] if self.chunk_blocks == 1 else []


class Chunks(Part):
    """The chunks of one block that are in CPU memory, and can be loaded."""

    def __init__(self, engine: VllmEngine) -> None:
        self._engine = engine
        manager = children_of(engine.built.scheduler.connector)[0].connector_scheduler.manager
        self._memory = getattr(manager, "primary_tier", manager)  # a look-up in both begins a copy from the second
        self._key_of = engine.runner.release.code("make_offload_key")
        self._loadable = FindableBlocks(self._has, len(engine.config.groups))

    def views(self, snapshot: Snapshot) -> Snapshot:
        return replace(snapshot, offloaded_columns=self._loadable.of(self._engine.requests, self._engine.places))

    def _has(self, hashes: Sequence[Any], group: int) -> Sequence[int]:
        return [int(self._memory.lookup(self._key_of(block_hash, group), None).name == "HIT") for block_hash in hashes]


def with_offloading(draw: Draw, config: VllmConfig, *, has: Callable[[str], bool]) -> VllmConfig:
    """The configuration with CPU memory. A chunk has two tokens at least: a prompt of one is loaded forever."""
    config = replaced(config, cpu_chunks=draw.one_of((40, 10, 20, 80)))
    offloaders = (CHUNKS, CHUNKS, *((EAGER, LAZY) if has("simple_offload") else ()))
    if (offloader := draw.one_of(offloaders if has("offloading") else offloaders[2:])) != CHUNKS:
        return replaced(config, offloader=offloader)
    chunk_blocks = draw.one_of((1, 1, 2)) if config.shape.page_size > 1 else 2
    config = replaced(config, chunk_blocks=chunk_blocks, **drawn(draw, Offload))
    if has("disk"):
        config = replaced(config, **drawn(draw, disk.SecondTier))
    return store.beside_cpu_memory(draw, config)
