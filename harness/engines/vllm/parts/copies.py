"""Copies between the device and CPU memory, which the worker of a connector makes.

A copy begins after the passes that were launched before it.  It is made early or late, but before its end is reported
and after the copies before it in its direction; ends are reported in this order, too, as by
v1/kv_offload/cpu/gpu_worker.py of the releases.
"""

from collections.abc import Callable, Collection, MutableMapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from swarden.harness.engines.vllm.boot import VllmRelease
from swarden.harness.engines.vllm.connector import LOAD_LATE, STORE_LATE, ConnectorWorker, ReleasedSide, children_of
from swarden.harness.engines.vllm.parts.disk import TagRows, Tiers
from swarden.harness.engines.vllm.parts.part import VllmEngine
from swarden.harness.engines.vllm.passes import VllmPass
from swarden.harness.engines.vllm.transfers import OffloadedBlock, begin_copies, offloaded_blocks

STORE_FAILS = "store.fails"
FATAL = {STORE_FAILS: "a copy to CPU memory fails, and writes nothing; a release dies of it (vLLM pull 52838)"}
POLLS, MORE_POLLS = 2, 4  # calls of get_finished until a copy has ended


@dataclass
class OffloadCopy:
    """A copy under way; `after` is the last launch before it."""

    id: int
    places: Sequence[OffloadedBlock]
    to_host: bool
    after: int
    is_early: bool
    polls: int
    has_failed: bool = False
    is_done: bool = False


class Copier:
    """The release's OffloadingWorker: copies blocks of tags."""

    def __init__(self, engine: VllmEngine, begun: Callable[[Sequence[int]], None]) -> None:
        """A load calls `begun` with the blocks that it writes."""
        self._runner, self._faults, self._note = engine.runner, engine.faults, begun
        self._memory, self.blocks_per_chunk = engine.runner.device.memory, engine.config.offload.chunk_blocks
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

    def wait_for_passes(self, launch: int) -> None:
        """Compute the passes up to this launch."""
        self._runner.synchronize(launch)

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
        make = self._runner.release.code("TransferResult")
        return [make(job_id=copy.id, success=not copy.has_failed) for copy in ended]

    def wait(self, job_ids: Collection[int]) -> None:
        for copy in list(self._under_way):
            if copy.id in job_ids:
                self._runner.synchronize(copy.after)
                for made in self._make(copy):
                    made.polls = 0

    def shutdown(self) -> None: ...

    def _submit(self, job_id: int, of_device: Any, of_host: Any, *, to_host: bool) -> bool:
        places = offloaded_blocks(of_device, of_host, self.blocks_per_chunk)
        self.begin(job_id, places, to_host=to_host, after=self.launched)
        return True

    def begin(self, copy_id: int, places: Sequence[OffloadedBlock], *, to_host: bool, after: int) -> OffloadCopy:
        """Begin a copy behind this launch; every second one is made as early as it may."""
        if not to_host:
            self._note([place.block for place in places])
        self._begun += 1
        is_early = bool(self._begun % 2)
        is_late = self._faults.fires(STORE_LATE if to_host else LOAD_LATE)
        polls = POLLS * (not is_early) + MORE_POLLS * is_late
        has_failed = to_host and STORE_FAILS in self._faults.known and self._faults.fires(STORE_FAILS)
        copy = OffloadCopy(copy_id, places, to_host, after, is_early, polls, has_failed)
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
        for each in made:
            if each.is_done:
                continue
            each.is_done = True
            for place in () if each.has_failed else each.places:
                if each.to_host:
                    self.host[place.chunk, place.number] = self._memory.unit(place.block)
                else:
                    self._memory.put_unit(place.block, self.host.get((place.chunk, place.number), ()))
        return made


class OffloadingSide(ReleasedSide):
    """The worker's side of the connector.

    With a store beside the CPU memory it is the release's MultiConnector over both, and `beside` has the loads from the
    store.  `tiers` are CPU memory and the second tier behind it, if there is one.
    """

    writes_blocks = True

    def __init__(self, release: VllmRelease, connector: Any, copier: Copier, beside: ConnectorWorker) -> None:
        super().__init__(release, connector)
        self.copier, self._beside, self.loading = copier, beside, beside.loading
        self.tiers: Tiers | None = None
        self.may_be_awaited = True
        for store_side in children_of(connector)[1:]:
            store_side.worker = beside

    def __bool__(self) -> bool:
        return bool(self.copier or self._beside or self.tiers) or super().__bool__()

    @property
    def is_awaited(self) -> bool:
        """Also if the scheduler has not been told yet that a copy has ended."""
        ends = (output.kv_connector_worker_meta is not None for output in self._outputs.values())
        return self.may_be_awaited and (bool(self) or any(ends))

    def received(self, flight: VllmPass, output: Any) -> None:
        """As execute_model: before the forward pass, and after it was launched."""
        connector = self._connector
        self.copier.launched = flight.launch - bool(flight.entries)
        begin_copies(connector, output, lambda: setattr(self.copier, "launched", flight.launch))
        self._outputs[id(flight)] = self.report(output.finished_req_ids)
        connector.clear_connector_metadata()

    def end_copies(self) -> Any:
        """Let all copies end, and report them."""
        self.copier.hurry()
        return self.report(())

    def computed(self, flight: VllmPass) -> Any:
        self.copier.advance(flight.launch)
        return super().computed(flight)
