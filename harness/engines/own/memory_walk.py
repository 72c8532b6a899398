"""Views of pools, tree and records, found by walking them.

Each walk visits every node, record and pool.  A view is reused if a comparison shows that it is unchanged.  So two
snapshots can be compared by identity.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import is_not
from typing import NamedTuple

from swarden.engine_under_test.cache.departures import Departing
from swarden.engine_under_test.cache.locks import LockReceipt
from swarden.engine_under_test.cache.node import Node
from swarden.engine_under_test.cache.record import KVRecord
from swarden.engine_under_test.cache.tree import RadixTree
from swarden.engine_under_test.host.copy_jobs import CopyJob
from swarden.engine_under_test.pools.ledger import Ledger
from swarden.engine_under_test.pools.memory import KVMemory
from swarden.harness.engines.own.followed import LedgerWalk
from swarden.invariants.events import BACKUP_KIND, FENCE_KIND, LOAD_KIND, TREE_KIND, Owner
from swarden.invariants.reuse import same_or_new
from swarden.invariants.view import (
    ComponentView,
    CopyJobView,
    Fence,
    Holding,
    NodeView,
    PeerMap,
    PoolView,
    ReceiptView,
    RecordView,
)

PLACE = slice(5)  # the facts of a node that place it: the node, its parent and its tokens
Outside = Mapping[str, Sequence[Holding]]  # holdings outside of the engine, by pool


class KnownNode(NamedTuple):
    """A visited node: the facts read from it, its view, and its holding in each device pool and each host pool.

    A holding is None if the node has no page there.
    """

    facts: tuple[object, ...]
    view: NodeView
    holdings: Sequence[Holding | None]
    copies: Sequence[Holding | None]


class KnownRecord(NamedTuple):
    """A visited record: its view, its row, and its private pages in each pool."""

    view: RecordView
    row: Holding
    private: Sequence[Holding]


class KnownReceipt(NamedTuple):
    receipt: LockReceipt
    view: ReceiptView


class MemoryWalk:
    """The views of the newest walk. A view shares no list that the engine changes in place."""

    def __init__(self, memory: KVMemory, tree: RadixTree) -> None:
        self.components = tuple(
            ComponentView(pool.name, pool.window, memory.page_size, bool(pool.slots)) for pool in memory.pools
        )
        self.pools: tuple[PoolView, ...] = ()
        self.nodes: tuple[NodeView, ...] = ()
        self.records: tuple[RecordView, ...] = ()
        self.receipts: tuple[ReceiptView, ...] = ()
        self.copy_jobs: tuple[CopyJobView, ...] | None = None
        self._memory = memory
        self._tree = tree
        self.ledgers = LedgerWalk(memory.ledgers)
        self._known_nodes: dict[int, KnownNode] = {}
        self._known_records: dict[Owner, KnownRecord] = {}
        self._known_receipts: dict[int, KnownReceipt] = {}

    @property
    def peer_maps(self) -> tuple[PeerMap, ...]:
        return self.ledgers.maps

    @property
    def host_pools(self) -> list[str]:
        return [pool.name for pool in self._memory.host.pools] if self._memory.host else []

    def visit(
        self,
        records: Sequence[KVRecord],
        outside: Outside,
        departing: Sequence[Departing] = (),
        copy_jobs: Sequence[CopyJob] = (),
        *,
        is_audit: bool = True,
    ) -> None:
        """Walk pools, tree and records. `departing` locks await a pass; they have no record.

        Free lists and peers are read whole, or if this is no audit, where events have marked them.
        """
        changed_handles = self.ledgers.visit_peers(is_audit=is_audit)
        nodes, is_same_tree = self._visit_nodes(changed_handles)
        known_records = self._visit_records(records, changed_handles)
        open_receipts: list[tuple[LockReceipt, Owner]] = [(record.receipt, record.owner) for record in records]
        open_receipts += [(one.receipt, Owner(FENCE_KIND, one.launch)) for one in departing]
        open_receipts += [(one.receipt, one.owner) for one in copy_jobs]
        self._visit_receipts(open_receipts, is_same_tree=is_same_tree)
        if self._memory.host is not None:
            self.copy_jobs = same_or_new(self.copy_jobs, tuple([_copy_job_view(one) for one in copy_jobs]))
        self._visit_pools(nodes, known_records, outside)

    def _visit_nodes(self, changed_handles: set[int]) -> tuple[list[KnownNode], bool]:
        """Every node, parents first, and whether nodes, tokens and parents are the same as in the previous walk."""
        known, nodes, is_same_tree = self._known_nodes, list[KnownNode](), True
        has_host = self._memory.host is not None
        inner: list[tuple[int, int, Node]] = [(0, namespace, root) for namespace, root in self._tree.roots.items()]
        for parent, namespace, above in inner:
            for node in above.children.values():
                facts: tuple[object, ...] = (
                    node,
                    parent,
                    namespace,
                    node.start,
                    node.key,
                    node.handles,
                    node.live,
                    node.locks,
                    node.last_used,
                    node.host.pages if has_host else None,
                    node.host.pins if has_host else None,
                )
                earlier = seen = known.get(node.id)
                has_other_peers = changed_handles and not changed_handles.isdisjoint(node.handles)
                if seen is None or has_other_peers or seen.facts != facts:
                    seen = self._new_node_view(node, parent, namespace)
                    is_same_tree = is_same_tree and earlier is not None and earlier.facts[PLACE] == facts[PLACE]
                is_same_tree = is_same_tree and node.parent is above
                nodes.append(seen)
                if node.children:
                    inner.append((node.id, namespace, node))
        self._known_nodes = {seen.view.id: seen for seen in nodes}
        self.nodes = same_or_new(self.nodes, tuple([seen.view for seen in nodes]))
        return nodes, is_same_tree and len(nodes) == len(known) == len(self._known_nodes)

    def _new_node_view(self, node: Node, parent: int, namespace: int) -> KnownNode:
        """A new view of a node. Its pages in the follower pools are the peers of its handles."""
        units, key, live, locks = self._units(node.handles), node.key[:], node.live[:], node.locks[:]
        copies, pins = None, None
        view = NodeView(node.id, parent, namespace, node.start, key, units, live, locks, node.last_used)
        if self._memory.host is not None:
            copies, pins = [pages[:] for pages in node.host.pages], node.host.pins[:]
            view = view._replace(copies=tuple(copies), pins=pins)
        facts = (node, parent, namespace, node.start, key, units[0], live, locks, node.last_used, copies, pins)
        owner, holdings = Owner(TREE_KIND, node.id), list[Holding | None]()
        for pages, num_locks in zip(units, locks, strict=True):
            present = [page for page in pages if page] if 0 in pages else pages
            holdings.append(Holding(owner, present, cached=True, locks=num_locks) if present else None)
        on_host = [
            Holding(owner, pages, cached=True, locks=num_pins) if pages else None
            for pages, num_pins in zip(view.copies, view.pins, strict=True)
        ]
        return KnownNode(facts, view, holdings, on_host)

    def _visit_records(self, records: Sequence[KVRecord], changed_handles: set[int]) -> list[KnownRecord]:
        known = self._known_records
        records_seen = [self._known_record(record, known.get(record.owner), changed_handles) for record in records]
        self._known_records = {seen.view.owner: seen for seen in records_seen}
        self.records = same_or_new(self.records, tuple([seen.view for seen in records_seen]))
        return records_seen

    def _known_record(self, record: KVRecord, seen: KnownRecord | None, changed_handles: set[int]) -> KnownRecord:
        """The view of a record. Unchanged lists are reused; if the whole view is unchanged, it is reused too."""
        if seen is None:
            return self._holdings_of(self._record_view(record, self._units(record.handles), record.owner))
        former, handles = seen.view, record.handles
        is_same = former.units[0] == handles and changed_handles.isdisjoint(handles)
        view = self._record_view(record, former.units if is_same else self._units(handles), former.owner)
        if view == former:
            return seen
        if is_same and (view.row, view.protected_len) == (former.row, former.protected_len):
            return KnownRecord(view, seen.row, seen.private)
        return self._holdings_of(view)

    def _record_view(self, record: KVRecord, units: tuple[Sequence[int], ...], owner: Owner) -> RecordView:
        return RecordView(
            owner,
            record.row,
            record.protected_len,
            record.committed_len,
            record.launched_len,
            record.allocated_len,
            tuple([_private_frontier(record, one.pool) for one in self.components]),
            units,
            self._memory.table.read(record.row, 0, len(record.handles) if record.row else 0),
            record.receipt.id,
            node_id(record.receipt.node),
        )

    def _holdings_of(self, view: RecordView) -> KnownRecord:
        first, private = view.protected_len // self._memory.page_size, []
        for pages in view.units:
            units = pages[first:]
            private.append(Holding(view.owner, [page for page in units if page] if 0 in units else units, cached=False))
        return KnownRecord(view, Holding(view.owner, (view.row,) if view.row else (), cached=False), private)

    def _visit_receipts(self, receipts: Iterable[tuple[LockReceipt, Owner]], *, is_same_tree: bool) -> None:
        """Every open receipt. If the tree is unchanged, a receipt covers the same nodes as before."""
        known, nodes, receipts_seen = self._known_receipts, self._known_nodes, list[KnownReceipt]()
        for receipt, holder in receipts:
            seen, bottom = known.get(receipt.id), nodes.get(receipt.node.id)
            is_rooted = is_same_tree and bottom is not None and bottom.facts[0] is receipt.node
            if seen is None or seen.receipt is not receipt or seen.view.holder != holder or not is_rooted:
                seen = KnownReceipt(receipt, _receipt_view(receipt, holder))
            receipts_seen.append(seen)
        self._known_receipts = {seen.view.id: seen for seen in receipts_seen}
        self.receipts = same_or_new(self.receipts, tuple([seen.view for seen in receipts_seen]))

    def _visit_pools(self, nodes: Sequence[KnownNode], records: Sequence[KnownRecord], outside: Outside) -> None:
        """The KV pools, the host pools, then the rows. The pages owned in a follower are the peers of the handles."""
        pools = []
        for index, ledger in enumerate(self._memory.ledgers.ledgers):
            holdings = [*outside.get(ledger.name, ())]
            holdings += [held for node in nodes if (held := node.holdings[index]) is not None]
            holdings += [private[index] for _, _, private in records]
            holdings += [
                Holding(Owner(LOAD_KIND, one.id), one.here[index], cached=False)
                for one in self.copy_jobs or ()
                if not one.to_host
            ]
            pools.append((ledger, "page", holdings))
        for index, ledger in enumerate(self._memory.host.ledgers if self._memory.host else ()):
            holdings = [held for node in nodes if (held := node.copies[index]) is not None]
            holdings += [
                Holding(Owner(BACKUP_KIND, one.id), one.there[index], cached=False)
                for one in self.copy_jobs or ()
                if one.to_host
            ]
            pools.append((ledger, "page", holdings))
        pools.append((self._memory.table.rows, "row", [row for _, row, _ in records]))
        before = self.pools or [None] * len(pools)
        views = [self._pool_view(*pool, old) for pool, old in zip(pools, before, strict=True)]
        if any(map(is_not, views, before)):
            self.pools = tuple(views)

    def _pool_view(self, ledger: Ledger, unit: str, holdings: Sequence[Holding], old: PoolView | None) -> PoolView:
        fences = [Fence(launch, units) for launch, units in ledger.fenced_units.items()]
        free = self.ledgers.free_units(ledger, () if old is None else old.free)
        if old is not None:
            holdings = same_or_new(old.holdings, holdings)
            if free is old.free and holdings is old.holdings and fences == old.fenced:
                return old
        return PoolView(ledger.name, unit, ledger.capacity, free, fences, holdings)

    def _units(self, handles: Sequence[int]) -> tuple[Sequence[int], ...]:
        """The handles, then per follower pool the peers of the handles."""
        return (handles[:], *[[peers[handle] for handle in handles] for peers in self.ledgers.peers.values()])


def node_id(node: Node) -> int:
    """The id of a node in a snapshot: 0 for a root."""
    return node.id if node.in_tree else 0


def _private_frontier(record: KVRecord, pool: str) -> int:
    """The frontier in a pool, as a snapshot has it: 0 if it is not in the private pages."""
    frontier = record.frontier(pool)
    return frontier if frontier > record.protected_len else 0


def _copy_job_view(job: CopyJob) -> CopyJobView:
    here = [[move.on_device for move in moves.values()] for moves in job.moves]
    there = [[move.on_host for move in moves.values()] for moves in job.moves]
    return CopyJobView(job.id, job.to_host, job.receipt.id, tuple(here), tuple(there))


def _receipt_view(receipt: LockReceipt, holder: Owner) -> ReceiptView:
    """The nodes that a receipt covers: a walk from its node towards the root over the locked length."""
    covers = [list(_covered(receipt.node, length)) for length in receipt.lens]
    return ReceiptView(receipt.id, holder, node_id(receipt.node), tuple(covers))


def _covered(bottom: Node, length: int) -> Iterator[int]:
    node: Node | None = bottom
    top = bottom.end - length
    while node is not None and node.end > top:
        yield node.id
        node = node.parent
