"""The prefix cache: applies the decisions of the tree to the pools."""

from collections.abc import Callable, Mapping, Sequence

from swarden.engine_under_test.cache.evict import evict, spare_none
from swarden.engine_under_test.cache.locks import LockDesk, LockReceipt
from swarden.engine_under_test.cache.match import Boundary, Match, longest, on_device, on_either, pages_between
from swarden.engine_under_test.cache.node import Node
from swarden.engine_under_test.cache.record import KVRecord
from swarden.engine_under_test.cache.tree import Insertion, RadixTree
from swarden.engine_under_test.pools.memory import KVMemory
from swarden.engine_under_test.pools.paired import NO_PAGE
from swarden.engine_under_test.ports import Observer
from swarden.engine_under_test.units import align_down
from swarden.invariants.events import TREE, Evicted, FreeCause, Inserted, Loaded

NO_FRONTIERS: Mapping[str, int] = {}  # no page is given up


class PrefixCache:
    """Matches, locks, publishes and evicts prefixes; without `sharing` it holds nothing.

    The caller owns its KVRecord.  The cache gives pages to the tree and frees the pages that the tree releases.
    """

    def __init__(self, memory: KVMemory, *, sharing: bool, observer: Observer | None = None) -> None:
        self.tree = RadixTree(memory.pools, page_size=memory.page_size, observer=observer)
        self._ledgers = memory.ledgers
        self._table = memory.table
        self._page_size = memory.page_size
        self._sharing = sharing
        self._desk = LockDesk(self.tree)
        self._observer = observer
        self._index = {component.name: index for index, component in enumerate(memory.pools)}
        self._has_host = memory.host is not None

    def match(self, tokens: Sequence[int], namespace: int) -> Match:
        """The longest prefix in whole pages, at least a token shorter than `tokens`, that a request can start from.

        In each component either all its pages are live, or at least those that the next token reads.  Changes nothing.
        """
        if not self._sharing:
            return Match(self.tree.nowhere, 0, [])
        usable = align_down(max(0, len(tokens) - 1), self._page_size)
        path = list(self.tree.walk(list(tokens[:usable]), namespace))
        node, length = longest(self.tree, path, on_device)
        reach = longest(self.tree, path, on_either) if self._has_host else None
        farther = reach if reach and reach.length > length else None
        return Match(node, length, self._handles(node, length), farther)

    def pages_to_lock(self, match: Match, *, frontiers: Mapping[str, int] = NO_FRONTIERS) -> dict[str, int]:
        """By pool, the evictable pages that locks on `match` and on its reach would protect; changes nothing.

        The pages of a pool below its frontier are not counted: the holder of the lock releases them at once.
        """
        wanted, (node, length) = {}, match.farthest
        for index, component in enumerate(self.tree.components):
            top = max(length - self.tree.covered_lens(length)[index], frontiers.get(component.name, 0))
            pages = self._evictable_between(node, index, top, length)
            if match.reach is not None:
                own_top = match.length - self.tree.covered_lens(match.length)[index]
                pages += self._evictable_between(match.node, index, own_top, min(match.length, top))
            wanted[component.name] = pages
        return wanted

    def pages_under(self, receipt: LockReceipt, *, but: Match) -> dict[str, int]:
        """Pages of every pool that only `receipt` protects and `but` does not read; they become evictable on unlock."""
        read = {node.id for node in but.farthest.node.upward()}
        return {
            component.name: sum(
                node.num_pages
                for node in receipt.segment(index)
                if node.live[index] and node.locks[index] == 1 and node.id not in read
            )
            for index, component in enumerate(self.tree.components)
        }

    def lock(self, boundary: Boundary | Match) -> LockReceipt:
        """Protect a matched prefix and mark it as used now; the caller releases the receipt once, with `unlock`."""
        node, below = boundary.node, boundary.length - boundary.node.start
        if node.in_tree and below < len(node.key):
            node = self.tree.split(node, below)
        self.tree.touch(list(node.upward()))
        return self._desk.lock(node)

    def lock_from(self, start: int, node: Node) -> LockReceipt:
        """Protect the tree's pages of [start, node.end), and the nodes without which they could not stay."""
        return self._desk.lock(node, start)

    def unlock(self, receipt: LockReceipt) -> None:
        self._desk.unlock(receipt)

    def slide(self, receipt: LockReceipt, frontiers: Mapping[str, int]) -> LockReceipt:
        """Release the part of a lock below the frontier of a pool; returns the receipt that replaces the old one."""
        return self._desk.slide(receipt, frontiers)

    def publish(self, record: KVRecord, tokens: Sequence[int], *, namespace: int, end: int) -> None:
        """Give the tree the whole pages of [0, end); the record shares them from now on.

        The tree may replace handles of the record by its own, which hold the same tokens.  The lock of the record
        moves to the new end.
        """
        end = align_down(end, self._page_size)
        if not self._sharing or end <= record.protected_len:
            return
        insertion = self.tree.insert(
            list(tokens[:end]),
            record.handles[: end // self._page_size],
            namespace=namespace,
            protected_len=record.protected_len,
            absent=record.absent,
        )
        self._execute(insertion, record)
        if self._observer:
            self._observer.notice(Inserted(record.owner.id, record.protected_len, record.highest_frontier, end))
        old, record.receipt = record.receipt, self._desk.lock(insertion.node)
        self._desk.unlock(old)
        record.protected_len = end
        record.forget_holes(end, record.allocated_len)

    def extend(self, record: KVRecord, match: Match) -> None:
        """Extend a record that has computed nothing yet to a longer match, which a load made."""
        assert record.allocated_len == record.protected_len, (
            f"{record.owner} has computed beyond {record.protected_len}"
        )
        if match.length > record.protected_len:
            old, record.receipt = record.receipt, self.lock(match)
            self._desk.unlock(old)
            record.write(self._table, 0, match.handles)
            record.protected_len = record.committed_len = record.launched_len = record.allocated_len = match.length
        if self._observer:
            self._observer.notice(Loaded(record.owner.id, record.protected_len, tuple(record.handles)))

    def evict(self, need: Mapping[str, int], spares: Callable[[Node], bool] = spare_none) -> list[Node]:
        """Free up to `need` unlocked pages per pool; returns the spared nodes, in eviction order."""
        wanted = [need.get(component.name, 0) for component in self.tree.components]
        if not any(count > 0 for count in wanted):
            return []
        eviction = evict(self.tree, wanted, spares)
        for pool, node in eviction.tombstoned:
            node.handles = self._ledgers.free_alone(pool, node.handles, owner=TREE, cause=FreeCause.EVICTED)
        for lacks, nodes in sorted(eviction.whole.items()):
            handles = [handle for node in nodes for handle in node.handles]
            self._ledgers.free(handles, owner=TREE, cause=FreeCause.EVICTED, lacks=lacks)
            for node in nodes:
                node.handles = [NO_PAGE] * node.num_pages
        if self._observer:
            left = zip(need, (self.evictable(pool) for pool in need), strict=True)
            names = [component.name for component in self.tree.components]
            to_free = [(pool, eviction.due(self._index[pool], count)) for pool, count in need.items()]
            self._observer.notice(Evicted(tuple(to_free), tuple(zip(names, eviction.freed, strict=True)), tuple(left)))
        return list(eviction.spared)

    def evictable(self, pool: str) -> int:
        """Pages of `pool` that evictions could free now."""
        return self.tree.evictable[self._index[pool]]

    def flush(self) -> None:
        """Evict all unlocked pages."""
        self.evict({component.name: self.evictable(component.name) for component in self.tree.components})

    def _execute(self, insertion: Insertion, record: KVRecord) -> None:
        """Give adopted pages to the tree, free replaced pages, and point the record at the tree's pages.

        A pass in flight may still read the record's old pages; these become free when the pass has completed.

        |protected, shared before|adopted, or duplicates of the tree's|private|
        |...................... the tree's, under the new receipt ....|private|
        """
        owner, ledgers = record.owner, self._ledgers
        after = record.last_launch
        for taken in insertion.taken_over:
            for pool in taken.gained:
                ledgers.take_over(pool, taken.kept, taken.replacing, from_owner=owner, to_owner=TREE)
            ledgers.free(taken.replacing, owner=owner, cause=FreeCause.PEERS_TAKEN_OVER, after=after, lacks=taken.lacks)
        for lacks, handles in insertion.displaced.items():
            ledgers.free(handles, owner=TREE, cause=FreeCause.RECOVERED, lacks=lacks)
        ledgers.give(insertion.adopted, from_owner=owner, to_owner=TREE)
        for lacks, handles in sorted(insertion.duplicates.items()):
            ledgers.free(handles, owner=owner, cause=FreeCause.DUPLICATE, after=after, lacks=lacks)
        record.write(self._table, 0, self._under_lock(insertion.handles))

    def _handles(self, node: Node, length: int) -> list[int]:
        parts = [step.handles[: (length - step.start) // self._page_size] for step in node.upward()]
        return self._under_lock([handle for part in reversed(parts) for handle in part])

    def _evictable_between(self, bottom: Node, component: int, top: int, end: int) -> int:
        """Live unlocked pages of [top, end), on the way up from `bottom`."""
        walk = pages_between(bottom, top, end, self._page_size)
        return sum(pages for node, pages in walk if node.live[component] and not node.locks[component])

    def _under_lock(self, handles: list[int]) -> list[int]:
        """The handles, with NO_PAGE in place of each page of the anchor that a lock on their end does not protect."""
        length = len(handles) * self._page_size
        for component, covered in zip(self.tree.components, self.tree.covered_lens(length), strict=True):
            open_pages = (length - covered) // self._page_size
            handles = self._ledgers.without(component.name, handles[:open_pages]) + handles[open_pages:]
        return handles
