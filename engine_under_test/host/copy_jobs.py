"""Copies of pages in flight between the device and the host."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from swarden.engine_under_test.cache.locks import LockReceipt
from swarden.engine_under_test.cache.node import Node
from swarden.engine_under_test.errors import AccountingError
from swarden.engine_under_test.pools.memory import HostMemory, KVMemory
from swarden.engine_under_test.ports import Acknowledgement, HostStore, Observer, PageCopy
from swarden.invariants.events import BACKUP_KIND, LOAD_KIND, CopyBegan, CopyEnded, Owner


class Move(NamedTuple):
    """One page on the device and its counterpart on the host."""

    on_device: int
    on_host: int


class CopyPart(NamedTuple):
    """The pages of one node and one component in a copy job."""

    node: Node
    component: int
    moves: Sequence[Move]

    @property
    def on_device(self) -> list[int]:
        return [move.on_device for move in self.moves]

    @property
    def on_host(self) -> list[int]:
        return [move.on_host for move in self.moves]


@dataclass(frozen=True, slots=True)
class CopyJob:
    """Pages of the prefix that ends with `receipt.node`: `moves` are, per component, by page index from the root.

    The receipt protects the nodes and their pages on the device.  The job owns the pages that it writes until it
    ends.  A split of a node does not change the page indices.
    """

    id: int
    to_host: bool
    receipt: LockReceipt
    moves: Sequence[dict[int, Move]]

    @property
    def owner(self) -> Owner:
        return copy_job_owner(self.id, to_host=self.to_host)

    def parts(self, page_size: int) -> Iterator[CopyPart]:
        """The parts by node, from the root on, and then by component."""
        for node in reversed(list(self.receipt.node.upward())):
            places = page_indices(node, page_size)
            for component, moves in enumerate(self.moves):
                if of_node := [moves[place] for place in places if place in moves]:
                    yield CopyPart(node, component, of_node)


def copy_job_owner(job_id: int, *, to_host: bool) -> Owner:
    return Owner(BACKUP_KIND if to_host else LOAD_KIND, job_id)


def page_indices(node: Node, page_size: int) -> range:
    """The page indices of a node, counted from the root."""
    return range(node.start // page_size, node.end // page_size)


class CopyJobs:
    """The copy jobs that were begun and are not yet acknowledged."""

    def __init__(self, memory: KVMemory, host: HostMemory, store: HostStore, observer: Observer | None) -> None:
        self.under_way: dict[int, CopyJob] = {}
        self._memory = memory
        self._host = host
        self._store = store
        self._observer = observer
        self._num_jobs = 0
        self._acknowledged: list[Acknowledgement] = []  # received, and not processed yet

    @property
    def next_id(self) -> int:
        return self._num_jobs + 1

    def begin(self, receipt: LockReceipt, moves: Sequence[dict[int, Move]], *, to_host: bool) -> CopyJob:
        """Start to copy; the job owns the receipt until it is acknowledged."""
        self._num_jobs += 1
        job = self.under_way[self._num_jobs] = CopyJob(self._num_jobs, to_host, receipt, moves)
        copies, moved = [], []
        for pool, host_pool, of_pool in zip(self._memory.pools, self._host.pools, moves, strict=True):
            if of_pool:
                here, there = [move.on_device for move in of_pool.values()], [move.on_host for move in of_pool.values()]
                moved.append((pool.name, tuple(here), tuple(there)))
                device_kv, host_kv = self._memory.store.kv(pool.name), self._host.store.kv(host_pool.name)
                sides = (device_kv, here, host_kv, there) if to_host else (host_kv, there, device_kv, here)
                copies.append(PageCopy(*sides, self._memory.store.page_dim(pool.name)))
        if self._observer:
            self._observer.notice(CopyBegan(job.id, to_host, tuple(moved)))
        self._store.begin(job.id, copies)
        return job

    def backups_ended(self) -> Iterator[tuple[CopyJob, bool]]:
        """Each acknowledged backup, and whether it succeeded; the caller unlocks its receipt before the next."""
        yield from self._ended(to_host=True)

    def loads_ended(self) -> Iterator[tuple[CopyJob, bool]]:
        """Each acknowledged load, and whether it succeeded; the caller locks its pages before the next eviction."""
        yield from self._ended(to_host=False)

    def wait(self) -> None:
        if self.under_way:
            self._store.wait()

    def _ended(self, *, to_host: bool) -> Iterator[tuple[CopyJob, bool]]:
        waiting = self._acknowledged + (self._store.acknowledged() if self.under_way else [])
        self._acknowledged = []
        for acknowledgement in waiting:
            job = self.under_way.get(acknowledgement.job)
            if job is None:
                raise AccountingError(f"copy job {acknowledgement.job}: acknowledged, but it is not in flight")
            if job.to_host != to_host:
                self._acknowledged.append(acknowledgement)
                continue
            del self.under_way[acknowledgement.job]
            if self._observer:
                self._observer.notice(CopyEnded(job.id, acknowledgement.failure))
            yield job, acknowledgement.failure is None
