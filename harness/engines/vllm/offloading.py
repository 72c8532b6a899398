"""Offloading to CPU memory by the release's OffloadingConnector: both of its sides are real, the copies are not.

A copy begins after the passes that were launched before it.  It is made early or late, but before its end is reported
and after the copies before it in its direction; ends are reported in this order, too, as by
v1/kv_offload/cpu/gpu_worker.py of the releases.
"""

from collections.abc import Callable, Collection, MutableMapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, NamedTuple

from swarden.harness.core.faults import FaultPlan
from swarden.harness.engines.vllm.boot import VllmRelease
from swarden.harness.engines.vllm.config import LOAD_LATE, STORE_LATE, VllmConfig
from swarden.harness.engines.vllm.loads import LateLoads, reported
from swarden.harness.engines.vllm.passes import VllmPass
from swarden.harness.engines.vllm.tiers import TagRows, Tiers
from swarden.harness.kit.tags import TagMemory

NAME = "OffloadingConnector"
POLLS, MORE_POLLS = 2, 4  # calls of get_finished until a copy has ended
BLOCK_BYTES = 4096  # of a block in all layers; the connector aligns chunks to it
ENOUGH_BYTES = 1 << 40


class OffloadedBlock(NamedTuple):
    """A block of the device, and its place in CPU memory: a chunk, and the number of the block there."""

    block: int
    chunk: int
    number: int


@dataclass
class OffloadCopy:
    """A copy under way; `after` is the last launch before it."""

    id: int
    places: Sequence[OffloadedBlock]
    to_host: bool
    after: int
    is_early: bool
    polls: int
    is_done: bool = False


class CopyHooks(NamedTuple):
    """Called by copies: `begun` with the blocks that a load writes; `synchronize` computes passes up to a launch."""

    begun: Callable[[Sequence[int]], None]
    synchronize: Callable[[int], None]


class Copier:
    """The release's OffloadingWorker: copies blocks of tags."""

    def __init__(
        self,
        release: VllmRelease,
        config: VllmConfig,
        memory: TagMemory,
        faults: FaultPlan,
        hooks: CopyHooks,
    ) -> None:
        self._release, self._blocks = release, config.chunk_blocks
        self._memory, self._faults, self._hooks = memory, faults, hooks
        self.host: MutableMapping[tuple[int, int], Sequence[int]] | TagRows = {}
        self._under_way: list[OffloadCopy] = []
        self._begun = 0
        self.launched = 0  # the last pass before the copies that are submitted now
        self.computed = 0

    def __bool__(self) -> bool:
        return bool(self._under_way)

    def advance(self, launch: int) -> None:
        """A pass has been computed: the early copies behind it are made before the next one."""
        self.computed = launch
        for copy in list(self._under_way):
            if copy.is_early and copy.after <= launch:
                self._make(copy)

    def hurry(self) -> None:
        """Let the copies end as soon as the passes before them have been computed."""
        for copy in self._under_way:
            copy.polls = 0

    # The methods of an OffloadingWorker.

    def submit_store(self, job_id: int, src_spec: Any, dst_spec: Any) -> bool:
        return self._submit(job_id, src_spec, dst_spec, to_host=True)

    def submit_load(self, job_id: int, src_spec: Any, dst_spec: Any, expedited: bool = False) -> bool:
        return self._submit(job_id, dst_spec, src_spec, to_host=False)

    def get_finished(self) -> list[Any]:
        """The copies whose end is reported; those of one direction end in their order."""
        for copy in self._under_way:
            copy.polls -= 1
        ended = [copy for to_host in (True, False) for copy in takewhile(self._has_ended, self._of(to_host=to_host))]
        for copy in ended:
            self._make(copy)
            self._under_way.remove(copy)
        return [self._release.make("TransferResult", job_id=copy.id, success=True) for copy in ended]

    def wait(self, job_ids: Collection[int]) -> None:
        for copy in list(self._under_way):
            if copy.id in job_ids:
                self._hooks.synchronize(copy.after)
                for one in self._make(copy):
                    one.polls = 0

    def shutdown(self) -> None: ...

    def _submit(self, job_id: int, of_device: Any, of_host: Any, *, to_host: bool) -> bool:
        places, chunks = list[OffloadedBlock](), of_host.block_ids.tolist()
        blocks = iter(of_device.block_ids.tolist())
        for count, first in zip(of_device.group_sizes, of_device.block_indices, strict=True):
            skipped = first % self._blocks
            for number in range(skipped, skipped + count):
                places.append(OffloadedBlock(next(blocks), chunks[number // self._blocks], number % self._blocks))
            chunks = chunks[-(-(skipped + count) // self._blocks) if count else 0 :]
        self.begin(job_id, places, to_host=to_host, after=self.launched)
        return True

    def begin(self, copy_id: int, places: Sequence[OffloadedBlock], *, to_host: bool, after: int) -> OffloadCopy:
        """Begin a copy behind this launch; every second one is made as early as it may."""
        if not to_host:
            self._hooks.begun([place.block for place in places])
        self._begun += 1
        is_early = bool(self._begun % 2)
        is_late = self._faults.fires(STORE_LATE if to_host else LOAD_LATE)
        polls = POLLS * (not is_early) + MORE_POLLS * is_late
        copy = OffloadCopy(copy_id, places, to_host, after, is_early, polls)
        self._under_way.append(copy)
        if copy.is_early and copy.after <= self.computed:
            self._make(copy)
        return copy

    def _of(self, *, to_host: bool) -> list[OffloadCopy]:
        return [copy for copy in self._under_way if copy.to_host == to_host]

    def _has_ended(self, copy: OffloadCopy) -> bool:
        return copy.polls <= 0 and copy.after <= self.computed

    def _make(self, copy: OffloadCopy) -> Sequence[OffloadCopy]:
        """Make a copy, and those before it in its direction.  Returns all of these."""
        queue = self._of(to_host=copy.to_host)
        made = queue[: queue.index(copy) + 1]
        for one in made:
            if one.is_done:
                continue
            one.is_done = True
            for place in one.places:
                if one.to_host:
                    self.host[place.chunk, place.number] = self._memory.unit(place.block)
                else:
                    self._memory.put_unit(place.block, self.host.get((place.chunk, place.number), ()))
        return made


def parts_of(connector: Any) -> Sequence[Any]:
    """The connectors below a MultiConnector, that of CPU memory first; or the one connector."""
    parts: Sequence[Any] = getattr(connector, "_connectors", [connector])
    return parts


class OffloadingSide:
    """The worker's side of the connector, as the model runner calls it.

    With a store beside the CPU memory it is the release's MultiConnector over both, and `loads` are those from the
    store.  `loading` has none from CPU memory: the scheduler says how far these reach.  `tiers` are CPU memory and the
    second tier behind it, if there is one.
    """

    def __init__(
        self, release: VllmRelease, connector: Any, copier: Copier, loads: LateLoads, tiers: Tiers | None = None
    ) -> None:
        self._release, self._connector, self._copier, self._loads = release, connector, copier, loads
        self._tiers = tiers
        for store in parts_of(connector)[1:]:
            store.worker = loads
        self._outputs: dict[int, Any] = {}
        self.loading = loads.loading

    def __bool__(self) -> bool:
        """Whether a copy is under way, or the end of a load has not been reported to the scheduler yet."""
        is_under_way = bool(self._copier or self._loads or self._tiers)
        return is_under_way or any(output.finished_recving for output in self._outputs.values())

    @property
    def has_unreported_ends(self) -> bool:
        """Whether the scheduler has not been told yet that a copy has ended, for which a request may wait."""
        return any(output.kv_connector_worker_meta is not None for output in self._outputs.values())

    def received(self, one: VllmPass, output: Any) -> None:
        """As execute_model: before the forward pass, and after it was launched."""
        connector, metadata = self._connector, output.kv_connector_metadata
        self._copier.launched = one.launch - bool(one.entries)
        connector.handle_preemptions(metadata)
        connector.bind_connector_metadata(metadata)
        loads_first = getattr(output, "has_sync_kv_loads", True)
        if loads_first:
            connector.start_load_kv(None)
        self._copier.launched = one.launch
        if not loads_first:
            connector.start_load_kv(None)
        connector.wait_for_save()
        self._outputs[id(one)] = self.report(output.finished_req_ids)
        connector.clear_connector_metadata()

    def end_copies(self) -> Any:
        """Let all copies end, and report them."""
        self._copier.hurry()
        return self.report(())

    def report(self, finished: Collection[str]) -> Any:
        """The connector's output for the scheduler: the copies that have ended."""
        connector = self._connector
        sent, received, failed = reported(connector, finished)
        return self._release.make(
            "KVConnectorOutput",
            finished_sending=sent,
            finished_recving=received,
            failed_recving=failed,
            invalid_block_ids=connector.get_block_ids_with_load_errors(),
            kv_connector_worker_meta=connector.build_connector_worker_meta(),
        )

    def computed(self, one: VllmPass) -> Any:
        """A pass has been computed. Returns what the connector reported when the pass was launched."""
        self._copier.advance(one.launch)
        return self._outputs.pop(id(one))


def tensors(release: VllmRelease, config: VllmConfig, layers: list[str]) -> list[Any]:
    """The memory of the device, from which the connector takes the bytes of a block."""
    size = BLOCK_BYTES * (config.num_blocks + 1)
    return [release.make("KVCacheTensor", size=size, shared_by=layers, layers=layers, layer_stride=0, block_stride=0)]


def settings(config: VllmConfig) -> dict[str, Any]:
    """The kv_connector_extra_config, so that CPU memory has `cpu_chunks` chunks."""
    return {
        "cpu_bytes_to_use": config.cpu_chunks * config.chunk_blocks * BLOCK_BYTES,
        "blocks_per_chunk": config.chunk_blocks,
        "eviction_policy": config.eviction,
        "sync_load_budget_bytes": ENOUGH_BYTES if config.sync_loads else 0,
    }
