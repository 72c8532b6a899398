"""Loads: restores pages from the host to the device."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

from swarden.engine_under_test.cache.match import Boundary, Match
from swarden.engine_under_test.cache.node import Node
from swarden.engine_under_test.cache.prefix_cache import PrefixCache
from swarden.engine_under_test.errors import PoolExhausted
from swarden.engine_under_test.host.copy_jobs import CopyJob, CopyJobs, Move, copy_job_owner, page_indices
from swarden.engine_under_test.pools.memory import KVMemory
from swarden.engine_under_test.pools.paired import Need
from swarden.invariants.events import TREE, FreeCause


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


def _pin(nodes: Sequence[Sequence[Node]], count: int) -> None:
    for component, of_component in enumerate(nodes):
        for node in of_component:
            node.host.pins[component] += count
