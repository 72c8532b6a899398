"""Copies of single blocks by the release's SimpleCPUOffloadConnector: both of its sides are real, the copies are not.

As in v1/simple_kv_offload/copy_backend.py of the releases: copies of one direction end in their order.  A copy to CPU
memory begins after the passes that were launched before an event for which the worker lets it wait; without one, and to
the device, it is not ordered with the passes.
"""

import sys
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

from swarden.harness.engines.vllm.front import number_of
from swarden.harness.engines.vllm.offloading import Copier, OffloadCopy, OffloadedBlock
from swarden.harness.kit.stand_ins import Silent
from swarden.invariants.events import BACKUP_KIND, LOAD_KIND, Owner

NAME = "SimpleCPUOffloadConnector"
HOST_POOL = "cpu_blocks"
STORES = ("_store_event_to_blocks", "_abandoned_store_event_to_blocks")
GPU, CPU = "gpu_block_ids", "cpu_block_ids"
LOADS = ("_reqs_to_load", "_abandoned_reqs_to_load")


class CopyEvent(NamedTuple):
    """The event behind a copy."""

    copier: "BlockCopier"
    copy: OffloadCopy

    def query(self) -> bool:
        return self.copier.has_ended(self.copy)

    def synchronize(self) -> None:
        self.copier.complete(self.copy)


class PassEvent:
    """An event of the worker: a copy that waits for it begins after the passes launched when it was recorded."""

    def __init__(self, copier: "BlockCopier") -> None:
        self._copier, self.after = copier, 0

    def record(self, *args: Any) -> None:
        self.after = self._copier.launched


class BlockCopier(Copier):
    """The release's copy backend: copies blocks of tags."""

    def launch_copy(
        self,
        src_blocks: Sequence[int],
        dst_blocks: Sequence[int],
        is_store: bool,
        event_idx: int,
        **launch: Any,
    ) -> None:
        """`launch` has the `events_list` that gets the event behind the copy, and perhaps a `wait_event` before it."""
        blocks, chunks = (src_blocks, dst_blocks) if is_store else (dst_blocks, src_blocks)
        places = [OffloadedBlock(block, chunk, 0) for block, chunk in zip(blocks, chunks, strict=True)]
        event = launch.get("wait_event")
        after = 0 if event is None else event.after
        copy = self.begin(event_idx, places, to_host=is_store, after=after)
        launch["events_list"].append((event_idx, CopyEvent(self, copy)))

    def has_ended(self, copy: OffloadCopy) -> bool:
        """Ask whether a copy has ended, once in each step."""
        copy.polls -= 1
        if ended := self._has_ended(copy):
            self._make(copy)
            self._under_way.remove(copy)
        return ended

    def complete(self, copy: OffloadCopy) -> None:
        """Wait for a copy."""
        self._hooks.synchronize(copy.after)
        self._make(copy)
        self._under_way.remove(copy)


class HeldBlock(NamedTuple):
    """A block of the device, or of CPU memory, of which the connector is a reader for a copy of this owner."""

    block: int
    owner: Owner


def held_blocks(connector: Any, side: str = GPU) -> Iterator[HeldBlock]:
    """The blocks of one side that copies read or write, by the scheduler's side of the connector.

    The id of the owner 0 is a store not begun yet.
    """
    manager = connector.scheduler_manager
    stores = [(event + 1, transfer) for name in STORES for event, transfer in getattr(manager, name, {}).items()]
    stores += [(0, transfer) for transfer in getattr(manager, "_pending_finished_stores", ())]
    loads = [(rid, load.transfer_meta) for name in LOADS for rid, load in getattr(manager, name, {}).items()]
    copies = [(Owner(BACKUP_KIND, number), transfer) for number, transfer in stores]
    copies += [(Owner(LOAD_KIND, number_of(rid)), transfer) for rid, transfer in loads]
    for owner, transfer in copies:
        yield from (HeldBlock(block, owner) for block in getattr(transfer, side))
    for rid, hit in getattr(manager, "_pending_cpu_hits", {}).items() if side == CPU else ():
        yield from (HeldBlock(block.block_id, Owner(LOAD_KIND, number_of(rid))) for group in hit[0] for block in group)


def attach(connector: Any, copier: BlockCopier) -> None:
    """Let the worker's side of the connector make its copies here; it calls torch for the streams of a GPU."""
    worker = connector.worker_handler
    worker._backend = copier
    vars(sys.modules[type(worker).__module__])["torch"] = Silent(Event=partial(PassEvent, copier), cuda=Silent())
