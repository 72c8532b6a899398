"""Backups: copies cached pages to the host, and drops the least recently used copies."""

from collections.abc import Container, Sequence

from swarden.engine_under_test.cache.node import Node
from swarden.engine_under_test.cache.prefix_cache import PrefixCache
from swarden.engine_under_test.host.copy_jobs import CopyJob, CopyJobs, Move, copy_job_owner, page_indices
from swarden.engine_under_test.pools.memory import HostMemory, KVMemory
from swarden.invariants.events import TREE, CopyDropped, FreeCause


class Backups:
    """Copies a node and its ancestors without a copy, so that every prefix on the host begins at a root.

    A backup owns its host pages until it is acknowledged; then the tree owns them.  `num_copied` counts the
    host pages of the tree by component.
    """

    def __init__(self, memory: KVMemory, host: HostMemory, cache: PrefixCache, jobs: CopyJobs) -> None:
        self._memory = memory
        self._host = host
        self._cache = cache
        self._jobs = jobs
        self.num_copied = [0] * len(memory.pools)

    def begin(self, node: Node) -> bool:
        """Begin to copy the pages of a node that the host lacks; False if there are none, or it cannot begin now."""
        chain = self._chain(node)
        if not chain or any(node.host.is_filling for node in chain):
            return False
        due = [lacking(node) for node in chain]
        need = [
            sum(node.num_pages for node, lacks in zip(chain, due, strict=True) if component in lacks)
            for component in range(len(node.live))
        ]
        above = [chain[0].parent] if chain[0].parent and self._cache.tree.candidates.is_rooted else []
        if not self._make_room(need, beside=[*chain, *above]):
            return False
        owner = copy_job_owner(self._jobs.next_id, to_host=True)
        receipt = self._cache.lock_from(chain[0].start, node)
        moves: list[dict[int, Move]] = []
        for component, (pool, ledger) in enumerate(zip(self._memory.pools, self._host.ledgers, strict=True)):
            pages, of_component = iter(ledger.take(need[component], owner=owner)), dict[int, Move]()
            for ancestor, lacks in zip(chain, due, strict=True):
                ancestor.host.is_filling = True
                if component in lacks:
                    on_device = self._memory.ledgers.pages_of(pool.name, ancestor.handles)
                    for place, page in zip(page_indices(ancestor, self._memory.page_size), on_device, strict=True):
                        of_component[place] = Move(page, next(pages))
            moves.append(of_component)
        self._jobs.begin(receipt, moves, to_host=True)
        return True

    def waits(self, node: Node) -> bool:
        """Is a backup of an ancestor, which must be on the host first, in flight?"""
        return any(ancestor.host.is_filling for ancestor in self._chain(node)[:-1])

    def end(self, job: CopyJob, *, succeeded: bool) -> None:
        """Give the copies to the tree; free them if the backup failed, or if the copy above was dropped meanwhile."""
        candidates = self._cache.tree.candidates
        for part in job.parts(self._memory.page_size):
            node, component, ledger = part.node, part.component, self._host.ledgers[part.component]
            node.host.is_filling = False
            if succeeded and (node.has_copy if candidates.can_drop_alone(component) else self._prefix_is_copied(node)):
                self._cache.tree.set_copy(node, component, part.on_host)
                self.num_copied[component] += len(part.on_host)
                ledger.give(part.on_host, from_owner=job.owner, to_owner=TREE)
            else:
                cause = FreeCause.BACKUP_UNUSED if succeeded else FreeCause.BACKUP_FAILED
                ledger.free(part.on_host, owner=job.owner, cause=cause)
            candidates.offer(node)
        self._cache.unlock(job.receipt)

    def drop_all(self) -> None:
        """Drop every copy that no load reads and no lock needs."""
        while (node := self._cache.tree.candidates.copies.pop()) is not None:
            self._drop(node, range(len(self.num_copied)))

    def _chain(self, node: Node) -> list[Node]:
        """The ancestors without a copy, topmost first, and then the node; [] if the host lacks nothing of the node."""
        if not node.in_tree or not lacking(node):
            return []
        chain = [node]
        while not self._prefix_is_copied(chain[0]):
            assert chain[0].parent is not None, f"node {chain[0].id} is not in the tree"
            chain.insert(0, chain[0].parent)
        return chain

    def _prefix_is_copied(self, node: Node) -> bool:
        """Does the parent have a copy, or can the host keep a copy of the node without one of the parent?"""
        above, is_rooted = node.parent, self._cache.tree.candidates.is_rooted
        return not is_rooted or above is None or not above.in_tree or above.has_copy

    def _make_room(self, need: Sequence[int], *, beside: Sequence[Node]) -> bool:
        """Drop copies, least recently used first, until `need` host pages are free; drop none if that is impossible.

        Nodes in `beside` lose at most the copies of pages that they can lose alone.
        """
        ledgers, candidates = self._host.ledgers, self._cache.tree.candidates
        if any(count > ledger.capacity for count, ledger in zip(need, ledgers, strict=True)):
            return False
        going, spared = dict[Node, set[int]](), list[Node]()
        free = [ledger.num_free for ledger in ledgers]
        for component, count in enumerate(need):
            is_whole, queue = not candidates.can_drop_alone(component), candidates.copies_of(component)
            while free[component] < count and (node := queue.pop()) is not None:
                gone = going.get(node, set())
                if component in gone:
                    continue
                if is_whole and node in beside:
                    spared.append(node)
                    continue
                going.pop(node, None)  # the last node that loses pages is the last that was chosen
                going[node] = gone | (set(range(len(free))) if is_whole else {component})
                if is_whole:
                    candidates.plan_drop(node)
                for index in going[node] - gone:
                    free[index] += len(node.host.pages[index])
        candidates.forget_planned_drops()
        is_enough = all(have >= count for have, count in zip(free, need, strict=True))
        for node, components in going.items():
            if is_enough:
                self._drop(node, components)
            else:
                spared.append(node)
        for node in spared:
            candidates.offer(node)
        return is_enough

    def _drop(self, node: Node, components: Container[int]) -> None:
        dropped = self._cache.tree.drop_copy(node, components)
        for component, (ledger, pages) in enumerate(zip(self._host.ledgers, dropped, strict=True)):
            ledger.free(pages, owner=TREE, cause=FreeCause.DROPPED)
            self.num_copied[component] -= len(pages)
        if self._cache.tree.observer:
            pools = tuple(pool.name for pool, pages in zip(self._memory.pools, dropped, strict=True) if pages)
            self._cache.tree.observer.notice(CopyDropped(node.id, pools))


def lacking(node: Node) -> list[int]:
    """The components in which a node has pages on the device, but none on the host."""
    return [index for index, live in enumerate(node.live) if live and not node.host.pages[index]]
