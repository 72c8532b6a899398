"""The host tier: cached pages are offloaded to the host, and restored for requests that need them.

The host store of a machine copies by the CPU, or on a separate CUDA stream.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch

from swarden.engine_under_test.cache.match import Boundary, Match, num_missing
from swarden.engine_under_test.cache.node import Node
from swarden.engine_under_test.cache.prefix_cache import PrefixCache
from swarden.engine_under_test.config import EngineConfig
from swarden.engine_under_test.errors import PoolExhausted
from swarden.engine_under_test.host.backups import Backups, lacking
from swarden.engine_under_test.host.copy_jobs import CopyJob, CopyJobs, Move, copy_job_owner, page_indices
from swarden.engine_under_test.pools.memory import KVMemory
from swarden.engine_under_test.pools.paired import Need, shortage
from swarden.engine_under_test.ports import Acknowledgement, HostStore, Observer, PageCopy, Ports
from swarden.invariants.events import TREE, FreeCause

NUM_HITS = {"write_through": 1, "write_through_selective": 2}  # the insertion is the first


class LoadUnderWay(NamedTuple):
    """A load begun for another request; `brings_all` is true if it loads every page that is needed now."""

    job: int
    brings_all: bool


class Loads:
    """Loads the pages that a reader of a prefix needs in each component.

    A load owns its device pages, and pins its host pages, until it is acknowledged.  Then the tree owns the device
    pages, or they are freed.
    """

    def __init__(self, memory: KVMemory, cache: PrefixCache, jobs: CopyJobs) -> None:
        self._memory = memory
        self._cache = cache
        self._jobs = jobs

    def under_way_to(self, boundary: Boundary, need: Need) -> LoadUnderWay | None:
        """A load in flight of some or all of the `need` pages up to `boundary`; None if there is none."""
        path, names = set(boundary.node.upward()), [pool.name for pool in self._memory.pools]
        for job in self._jobs.under_way.values():
            parts = () if job.to_host else job.parts(self._memory.page_size)
            if on_path := [part for part in parts if part.node in path]:
                coming = Counter[str]()
                for part in on_path:
                    coming[names[part.component]] += len(part.on_device)
                return LoadUnderWay(job.id, all(coming[pool] >= count for pool, count in need.items()))
        return None

    def begin(self, match: Match, need: Need, make_room: Callable[[Need], None]) -> int:
        """Begin to load the `need` pages that a match lacks up to its reach; returns the job's id.

        The path is locked and its host pages are pinned before `make_room` evicts others.  Raises PoolExhausted if a
        pool is short after that; the lock and the pins are undone.
        """
        receipt = self._cache.lock(match.farthest)
        absent = [
            [node for node in receipt.segment(component) if not node.live[component]]
            for component in range(len(self._memory.pools))
        ]
        _pin(absent, 1)
        make_room(need)
        owner = copy_job_owner(self._jobs.next_id, to_host=False)
        try:
            taken = self._memory.ledgers.take_apart(need, owner=owner)
        except PoolExhausted:
            _pin(absent, -1)
            self._cache.unlock(receipt)
            raise
        moves: list[dict[int, Move]] = []
        for component, pool in enumerate(self._memory.pools):
            pages, of_component = iter(taken[pool.name]), dict[int, Move]()
            for node in absent[component]:
                places = page_indices(node, self._memory.page_size)
                for place, on_host in zip(places, node.host.pages[component], strict=True):
                    of_component[place] = Move(next(pages), on_host)
            moves.append(of_component)
        return self._jobs.begin(receipt, moves, to_host=False).id

    def end(self, job: CopyJob, *, succeeded: bool) -> None:
        """Give the pages to the tree, and unlock.  Pages of a failed load, or of nodes that became live, are freed."""
        ledgers, tree, owner = self._memory.ledgers, self._cache.tree, job.owner
        for part in job.parts(self._memory.page_size):
            node, component, pool = part.node, part.component, self._memory.pools[part.component].name
            node.host.pins[component] -= 1
            if succeeded and not node.live[component]:
                node.handles = ledgers.join(pool, node.handles, part.on_device, from_owner=owner, to_owner=TREE)
                tree.set_live(node, component, live=True)
            else:
                cause = FreeCause.LOAD_UNUSED if succeeded else FreeCause.LOAD_FAILED
                ledgers.ledgers[component].free(part.on_device, owner=owner, cause=cause)
            tree.candidates.offer(node)
        self._cache.unlock(job.receipt)


@dataclass(frozen=True, slots=True)
class Policy:
    """When a node is copied to the host, and when a prefix is loaded."""

    num_hits: int | None  # after which write-through copies a node; None: write-back, at its eviction
    load_back_threshold: int  # tokens that a load must save, unless the prefix ends with tombstones

    @classmethod
    def for_config(cls, config: EngineConfig) -> "Policy":
        return cls(NUM_HITS.get(config.host_policy), config.load_back_threshold)

    @property
    def writes_back(self) -> bool:
        return self.num_hits is None


class HostTier:
    """Keeps copies of cached pages on the host; the pages of a copy job stay in use until it is acknowledged."""

    @classmethod
    def for_config(cls, config: EngineConfig, memory: KVMemory, cache: PrefixCache, ports: Ports) -> "HostTier":
        """The tier of a configuration, with the store of the ports or else the copier of this machine."""
        return cls(Policy.for_config(config), memory, cache, ports.host or HostCopier(), ports.observer)

    def __init__(
        self, policy: Policy, memory: KVMemory, cache: PrefixCache, store: HostStore, observer: Observer | None
    ) -> None:
        host = memory.host
        assert host is not None, "a host tier needs pools on the host"
        self._policy = policy
        self._memory = memory
        self._cache = cache
        self._jobs = CopyJobs(memory, host, store, observer)
        self.backups = Backups(memory, host, cache, self._jobs)
        self._loads = Loads(memory, cache, self._jobs)
        self._wanted: dict[int, Node] = {}

    @property
    def under_way(self) -> Sequence[CopyJob]:
        """The copy jobs that have not been acknowledged."""
        return list(self._jobs.under_way.values())

    def poll(self) -> None:
        """Process all acknowledged copy jobs; any request can match the loaded pages from now on."""
        self._end_backups()
        for job, succeeded in self._jobs.loads_ended():
            self._loads.end(job, succeeded=succeeded)

    def wait(self) -> None:
        """Wait for the copy jobs in flight, up to the limit of the store; a later poll processes them."""
        self._jobs.wait()

    def found(self, node: Node) -> None:
        """Count a match of the prefix that ends with `node`."""
        for step in node.upward():
            step.host.num_hits += 1
        self.published(node)

    def published(self, node: Node) -> None:
        """Schedule backups for the nodes up to `node` that have enough hits."""
        if (num_hits := self._policy.num_hits) is not None:
            due = [step for step in node.upward() if step.host.num_hits >= num_hits and lacking(step)]
            self._wanted |= {step.id: step for step in due}

    def back_up(self) -> None:
        """Begin the backups that are due, except those that must wait for the backup of an ancestor."""
        for node in list(self._wanted.values()):
            if not self.backups.waits(node):
                del self._wanted[node.id]
                self.backups.begin(node)

    def make_room(self, need: Need) -> None:
        """Evict until `need` pages are free in each pool, or nothing evictable is left.

        With write-back a node without a copy is backed up before its eviction.  A node that cannot be backed up is
        evicted without a copy; so is every node once the store fails or does not answer.
        """
        ledgers, waits = self._memory.ledgers.ledgers, self._policy.writes_back
        hopeless: set[int] = set()
        while waits and (short := shortage(ledgers, need)):
            spared = self._cache.evict(short, spares=lambda node: node.id not in hopeless and bool(lacking(node)))
            for node in spared:
                if not self.backups.begin(node) and not self.backups.waits(node):
                    hopeless.add(node.id)
            self._jobs.wait()
            succeeded = self._end_backups()
            waits = bool(spared) and succeeded and not any(job.to_host for job in self.under_way)
        self._cache.evict(shortage(ledgers, need))

    def pages_to_load(self, match: Match) -> Need:
        """By pool, the pages that a load for a match would bring; {} if there are none, or the load is not worth it."""
        if match.reach is None:
            return {}
        pools = self._memory.pools
        pages = dict(zip([pool.name for pool in pools], num_missing(self._cache.tree, match.reach), strict=True))
        ends_with_tombstones = any(pages[pool.name] for pool in pools if pool.leaves_tombstones)
        is_worth_it = match.reach.length - match.length >= self._policy.load_back_threshold
        return pages if ends_with_tombstones or is_worth_it else {}

    def load_under_way(self, match: Match) -> LoadUnderWay | None:
        """A load in flight that brings some of the pages up to the reach of a match."""
        return None if match.reach is None else self._loads.under_way_to(match.reach, self.pages_to_load(match))

    def load(self, match: Match, need: Need) -> int:
        """Begin to load a match up to its reach; returns the job's id.  Raises PoolExhausted, without a load."""
        return self._loads.begin(match, need, self.make_room)

    def flush(self) -> None:
        """Drop the copies that no load reads and no lock needs."""
        self.backups.drop_all()

    def _end_backups(self) -> bool:
        """Process all acknowledged backups; False if one failed."""
        all_succeeded = True
        for job, succeeded in self._jobs.backups_ended():
            self.backups.end(job, succeeded=succeeded)
            all_succeeded = all_succeeded and succeeded
        return all_succeeded


def _pin(nodes: Sequence[Sequence[Node]], count: int) -> None:
    for component, of_component in enumerate(nodes):
        for node in of_component:
            node.host.pins[component] += count


@dataclass(slots=True)
class CopyUnderWay:
    """A job on the stream: its completion event, and the tensors that must live until then."""

    job: int
    done: torch.cuda.Event
    kept: list[torch.Tensor] = field(default_factory=list)

    @property
    def is_done(self) -> bool:
        return bool(self.done.query())  # type: ignore[no-untyped-call]  # torch has no annotation there


class HostCopier:
    """Copies at once if both sides are in host memory, asynchronously if one side is on a GPU."""

    def __init__(self) -> None:
        self._done: list[Acknowledgement] = []
        self._under_way: list[CopyUnderWay] = []
        self._stream: torch.cuda.Stream | None = None

    def begin(self, job: int, copies: Sequence[PageCopy]) -> None:
        gpu = next((side.device for copy in copies for side in (copy.source, copy.target) if side.is_cuda), None)
        if gpu is None:
            for copy in copies:
                source, target = (
                    torch.tensor(pages, dtype=torch.int64) for pages in (copy.source_pages, copy.target_pages)
                )
                copy.target.index_copy_(copy.page_dim, target, copy.source.index_select(copy.page_dim, source))
            self._done.append(Acknowledgement(job))
        else:
            self._under_way.append(self._begin_on(gpu, job, copies))

    def acknowledged(self) -> list[Acknowledgement]:
        ended = [copy for copy in self._under_way if copy.is_done]
        self._under_way = [copy for copy in self._under_way if copy not in ended]
        done, self._done = self._done, []
        return done + [Acknowledgement(copy.job) for copy in ended]

    def wait(self) -> None:
        for copy in self._under_way:
            copy.done.synchronize()

    def _begin_on(self, gpu: torch.device, job: int, copies: Sequence[PageCopy]) -> CopyUnderWay:
        """Copy page by page on the separate stream, after all work launched before; the host pages are pinned."""
        self._stream = self._stream or torch.cuda.Stream(gpu)  # type: ignore[no-untyped-call]  # nor here
        self._stream.wait_stream(torch.cuda.current_stream(gpu))
        under_way = CopyUnderWay(job, torch.cuda.Event())  # type: ignore[no-untyped-call]  # nor here
        with torch.cuda.stream(self._stream):
            for copy in copies:
                for source_page, target_page in zip(copy.source_pages, copy.target_pages, strict=True):
                    source = copy.source.select(copy.page_dim, source_page)
                    copy.target.select(copy.page_dim, target_page).copy_(source, non_blocking=True)
                    under_way.kept.append(source)
            under_way.done.record(self._stream)
        return under_way
