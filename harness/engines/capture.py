"""The facts of our engine, found by walking it, and what it claims of itself.

The walk visits everything each time; what it finds unchanged it shows by the very same view, so
that whoever compares two snapshots need not look inside.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeVar

from engine_under_test.cache.locks import LockReceipt
from engine_under_test.cache.node import Node
from engine_under_test.cache.record import KVRecord
from engine_under_test.cache.tree import RadixTree
from engine_under_test.config import EngineConfig
from engine_under_test.engine import Engine
from engine_under_test.pools.ledger import Ledger
from engine_under_test.pools.memory import KVMemory
from invariants.view import (
    TREE_KIND,
    Claims,
    ComponentView,
    Fence,
    Holding,
    Limits,
    NodeView,
    Owner,
    PeerMap,
    PoolView,
    ReceiptView,
    RecordView,
    RequestView,
    Snapshot,
)

MILLION = 1_000_000
Outside = Mapping[str, Sequence[Holding]]  # what somebody else holds, by pool
PartT = TypeVar("PartT")


class EngineCapture:
    """Walks one engine between two steps; shares no list that the engine changes in place."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._walk = MemoryWalk(engine.memory, engine.cache.tree)
        self._limits = limits_of(engine.config)
        self._requests: tuple[RequestView, ...] = ()

    def capture(self, *, step: int, outside: Outside) -> Snapshot:
        engine, walk = self._engine, self._walk
        records = engine.scheduler.custody.records
        walk.visit(records, outside)
        self._requests = same_or_new(self._requests, tuple(_request_views(engine)))
        return Snapshot(
            step,
            self._limits,
            walk.components,
            walk.pools,
            walk.peer_maps,
            walk.nodes,
            walk.receipts,
            walk.records,
            self._requests,
            claims_of(engine.memory, engine.cache.tree, ratio=engine.scheduler.ratio.value),
        )


class MemoryWalk:
    """What a walk over pools, tree and records found, as views; the last walk's where nothing changed."""

    def __init__(self, memory: KVMemory, tree: RadixTree) -> None:
        self.components = tuple(ComponentView(pool.name, pool.window) for pool in memory.pools)
        self.pools: tuple[PoolView, ...] = ()
        self.peer_maps: tuple[PeerMap, ...] = ()
        self.nodes: tuple[NodeView, ...] = ()
        self.records: tuple[RecordView, ...] = ()
        self.receipts: tuple[ReceiptView, ...] = ()
        self._memory = memory
        self._tree = tree
        self._node_views: dict[int, NodeView] = {}
        self._holdings: dict[int, tuple[NodeView, list[Holding | None]]] = {}

    def visit(self, records: Sequence[KVRecord], outside: Outside) -> None:
        """Walk everything."""
        self._visit_peers()
        self._visit_nodes()
        self.records = same_or_new(self.records, tuple([self._record_view(record) for record in records]))
        receipts = tuple([_receipt_view(record.receipt, Owner(*record.owner)) for record in records])
        self.receipts = same_or_new(self.receipts, receipts)
        self._visit_pools(outside)

    def _visit_peers(self) -> None:
        ledgers = self._memory.ledgers
        found = tuple([PeerMap(ledgers.anchor.name, pool, peers[:]) for pool, peers in ledgers.peers.items()])
        self.peer_maps = same_or_new(self.peer_maps, found)

    def _visit_nodes(self) -> None:
        """Every node, parents first; the pages of the followers through the peer map."""
        peers = [peer_map.peers for peer_map in self.peer_maps]
        known, found = self._node_views, {}
        for namespace, root in self._tree.roots.items():
            stack: list[tuple[int, Node]] = [(0, child) for child in root.children.values()]
            while stack:
                parent, node = stack.pop()
                handles, view = node.handles, known.get(node.id)
                units = (handles, *[[peer[handle] for handle in handles] for peer in peers])
                if view is None or not _shows(view, node, parent, units):
                    live, locks = node.live[:], node.locks[:]
                    view = NodeView(
                        node.id, parent, namespace, node.start, node.key, units, live, locks, node.last_used
                    )
                found[node.id] = view
                if node.children:
                    stack += [(node.id, child) for child in node.children.values()]
        self._node_views = found
        self.nodes = same_or_new(self.nodes, tuple(found.values()))

    def _visit_pools(self, outside: Outside) -> None:
        """The KV pools, then the rows; what is held in a follower is what the handles' peers are."""
        memory = self._memory
        cached = self._node_holdings()
        pools = []
        for index, ledger in enumerate(memory.ledgers.ledgers):
            holdings = [*outside.get(ledger.name, ())]
            holdings += [held for of_node in cached if (held := of_node[index]) is not None]
            for record in self.records:
                private = record.units[index][record.protected_len // memory.page_size :]
                if 0 in private:
                    private = [unit for unit in private if unit]
                holdings.append(Holding(record.owner, private, cached=False))
            pools.append((ledger, "page", holdings))
        rows = [Holding(record.owner, (record.row,), cached=False) for record in self.records]
        pools.append((memory.table.rows, "row", rows))
        before = self.pools or [None] * len(pools)
        views = [_pool_view(*pool, old) for pool, old in zip(pools, before, strict=True)]
        self.pools = same_or_new(self.pools, tuple(views))

    def _node_holdings(self) -> list[list[Holding | None]]:
        """Per node what it holds in each pool; None where that is nothing."""
        known, found = self._holdings, {}
        for view in self.nodes:
            held = known.get(view.id)
            if held is None or held[0] is not view:
                held = (view, [_node_holding(view, index) for index in range(len(self.components))])
            found[view.id] = held
        self._holdings = found
        return [held[1] for held in found.values()]

    def _record_view(self, record: KVRecord) -> RecordView:
        handles = record.handles[:]
        followers = [[peer_map.peers[handle] for handle in handles] for peer_map in self.peer_maps]
        return RecordView(
            Owner(*record.owner),
            record.row,
            record.protected_len,
            record.committed_len,
            record.allocated_len,
            record.frontier,
            (handles, *followers),
            self._memory.table.read(record.row, 0, len(handles)),
            record.receipt.id,
            _id(record.receipt.node),
        )


def same_or_new(old: PartT, new: PartT) -> PartT:
    """The old value where the new one says the same: who holds both can tell by identity."""
    return old if old == new else new


def limits_of(config: EngineConfig) -> Limits:
    return Limits(
        config.page_size,
        config.max_running_requests,
        config.max_context_len,
        config.chunk_len,
        config.window_eviction_interval,
        int(config.new_token_ratio_floor * MILLION),
    )


def claims_of(memory: KVMemory, tree: RadixTree, *, ratio: float) -> Claims:
    names = [pool.name for pool in memory.pools]
    return Claims(
        {ledger.name: ledger.num_free for ledger in memory.ledgers.ledgers},
        dict(zip(names, tree.evictable, strict=True)),
        dict(zip(names, tree.protected, strict=True)),
        dict.fromkeys(names, 0),
        int(ratio * MILLION),
    )


def _shows(view: NodeView, node: Node, parent: int, units: tuple[Sequence[int], ...]) -> bool:
    """Does a view say what the node is now?"""
    return (
        view.parent == parent
        and view.key is node.key
        and view.start == node.start
        and view.last_used == node.last_used
        and view.locks == node.locks
        and view.live == node.live
        and view.units == units
    )


def _node_holding(view: NodeView, index: int) -> Holding | None:
    units = view.units[index]
    if 0 in units:
        units = [unit for unit in units if unit]
    return Holding(Owner(TREE_KIND, view.id), units, cached=True, locks=view.locks[index]) if units else None


def _pool_view(ledger: Ledger, unit: str, holdings: Sequence[Holding], old: PoolView | None) -> PoolView:
    fences = [Fence(launch, units) for launch, units in ledger.fenced_units.items()]
    if old is None:
        return PoolView(ledger.name, unit, ledger.capacity, ledger.free_units, fences, holdings)
    free, held = same_or_new(old.free, ledger.free_units), same_or_new(old.holdings, holdings)
    if free is old.free and held is old.holdings and fences == old.fenced:
        return old
    return PoolView(ledger.name, unit, ledger.capacity, free, fences, held)


def _receipt_view(receipt: LockReceipt, holder: Owner) -> ReceiptView:
    """The nodes that a receipt covers, by walking up as many tokens as it says."""
    covers = [list(_covered(receipt.node, length)) for length in receipt.lens]
    return ReceiptView(receipt.id, holder, _id(receipt.node), tuple(covers))


def _covered(bottom: Node, length: int) -> Iterator[int]:
    node: Node | None = bottom
    top = bottom.end - length
    while node is not None and node.end > top:
        yield node.id
        node = node.parent


def _request_views(engine: Engine) -> Iterator[RequestView]:
    scheduler = engine.scheduler
    places = [("waiting", list(scheduler.waiting)), ("running", scheduler.running)]
    if scheduler.chunked:
        places.append(("chunked", [scheduler.chunked]))
    for place, requests in places:
        for request in requests:
            yield RequestView(
                request.id, place, request.namespace, request.prompt_len, request.num_outputs, request.max_new_tokens
            )


def _id(node: Node) -> int:
    """The id of a node as the snapshot has it: 0 for a root."""
    return node.id if node.in_tree else 0
