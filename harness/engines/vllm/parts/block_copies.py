"""Copies of single blocks: blocks that leave the device go to CPU memory, by the SimpleCPUOffloadConnector.

Real: both sides of the `SimpleCPUOffloadConnector`, with its CPU block pool.
Stand-in: the copy backend, in order in each direction. A store waits for the passes that its worker names, a load for
none.
Shows: copies of blocks that were freed.
Settings: `offloader` "eager" or "lazy".

As in v1/simple_kv_offload/copy_backend.py of the releases, a store begins after the passes that were launched before an
event for which the worker lets it wait; without one, and to the device, a copy is not ordered with the passes.
"""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import msgspec

from swarden.harness.engines.vllm.front import number_of
from swarden.harness.engines.vllm.moves import HeldBlock, Moves
from swarden.harness.engines.vllm.parts.copies import Copier, OffloadCopy, OffloadingSide
from swarden.harness.engines.vllm.parts.part import VllmEngine
from swarden.harness.engines.vllm.transfers import OffloadedBlock
from swarden.harness.kit.part import Part
from swarden.harness.kit.stand_ins import Silent
from swarden.invariants.events import BACKUP_KIND, LOAD_KIND, Owner
from swarden.invariants.view import Snapshot

STORES = ("_store_event_to_blocks", "_abandoned_store_event_to_blocks")
GPU, CPU = "gpu_block_ids", "cpu_block_ids"
MOST_STEPS_FOR_STORES = 16  # until the copies have ended that the close of a session begins
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

    def __init__(self, copier: Copier) -> None:
        self._copier, self.after = copier, 0

    def record(self, *args: Any) -> None:
        self.after = self._copier.launched

    def synchronize(self) -> None:
        self._copier.wait_for_passes(self.after)


class BlockCopier(Copier):
    """The release's copy backend: copies blocks of tags."""

    def launch_copy(
        self, src_blocks: Sequence[int], dst_blocks: Sequence[int], is_store: bool, event_idx: int, **launch: Any
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
        self._runner.synchronize(copy.after)
        self._make(copy)
        self._under_way.remove(copy)


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


def let_copy(connector: Any, copier: BlockCopier) -> Copier:
    """Let the worker's side of the connector make its copies here; it calls torch for the streams of a GPU."""
    worker = connector.worker_handler
    worker._backend = copier
    vars(sys.modules[type(worker).__module__])["torch"] = Silent(Event=partial(PassEvent, copier), cuda=Silent())
    return copier


class LazyCopies:
    """Copies of single blocks that begin also in steps without a pass.

    A wait for them has an end if each that has begun since the last launch copies other blocks, because a pool has a
    limited number of them.  If one copies a block again, they can take turns for ever, and the wait is judged so:
    whether they will stop cannot be told from what has been copied.
    """

    def __init__(self) -> None:
        self._launch, self._begun = 0, frozenset[Owner]()  # the last launch, and the copies that had begun by then
        self._first = dict[int, Owner]()  # the first copy of a block since then

    def note(self, launch: int, copies: Sequence[HeldBlock]) -> bool:
        """Note the blocks in copies now; returns whether a wait has an end: for a load, or for copies of new blocks."""
        if launch != self._launch:
            self._launch, self._begun, self._first = launch, frozenset([copy.owner for copy in copies]), {}
        stores = [copy for copy in copies if copy.owner.kind == BACKUP_KIND]
        has_repeated = False
        for copy in stores:
            if copy.owner not in self._begun:
                has_repeated |= self._first.setdefault(copy.block, copy.owner) != copy.owner
        return len(stores) < len(copies) or (bool(stores) and not has_repeated)


class BlockCopies(Part):
    """The copies that the connector has begun, and the pool of blocks in CPU memory."""

    def __init__(self, engine: VllmEngine, side: OffloadingSide, *, is_lazy: bool) -> None:
        self._engine, self._side = engine, side
        self._lazy = LazyCopies() if is_lazy else None
        side.may_be_awaited = not is_lazy  # a request may wait for lazy copies alone
        self._connector = connector = engine.built.scheduler.connector
        host = msgspec.structs.replace(engine.built, manager=None, pool=connector.scheduler_manager.cpu_block_pool)
        beside = Moves(host, engine.report, engine.requests.owner, partial(held_blocks, connector, CPU))
        engine.moves.hold_copies(partial(held_blocks, connector), beside)

    def views(self, snapshot: Snapshot) -> Snapshot:
        copies, lazy = self._engine.moves.copies, self._lazy
        is_copying = bool(copies) if lazy is None else lazy.note(self._engine.runner.last_launch, copies)
        return replace(snapshot, is_loading=snapshot.is_loading or is_copying)

    def clear(self) -> None:
        """An idle engine core learns with its next request that a load has ended, and in older releases, a store."""
        engine = self._engine
        for _ in range(MOST_STEPS_FOR_STORES):  # a session that has just been closed begins a store
            if engine.built.core.batch_queue or engine.built.scheduler.has_requests():
                engine.step()  # an empty pass reports its end
        is_storing = any(held.owner.kind == BACKUP_KIND for held in held_blocks(self._connector))
        if not (is_storing and engine.runner.release.has("steps_for_stores")):
            self._connector.update_connector_output(self._side.end_copies())
