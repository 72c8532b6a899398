"""The facts of our engine, found by walking it, and what it claims of itself."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

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


def capture_engine(engine: Engine, *, step: int, outside: Outside) -> Snapshot:
    """Walk the engine between two steps; shares no list that the engine changes in place."""
    memory, tree, scheduler = engine.memory, engine.cache.tree, engine.scheduler
    records = scheduler.custody.records
    nodes = list(node_views(tree, memory))
    record_views = [_record_view(record, memory) for record in records]
    row_holdings = [Holding(record.owner, (record.row,), cached=False) for record in record_views]
    return Snapshot(
        step,
        limits_of(engine.config),
        component_views(memory),
        (*pool_views(memory, nodes, record_views, outside), _pool_view(memory.table.rows, "row", row_holdings)),
        peer_maps(memory),
        tuple(nodes),
        tuple(receipt_view(record.receipt, Owner(*record.owner)) for record in records),
        tuple(record_views),
        tuple(_request_views(engine)),
        claims_of(memory, tree, ratio=scheduler.ratio.value),
    )


def limits_of(config: EngineConfig) -> Limits:
    return Limits(
        config.page_size,
        config.max_running_requests,
        config.max_context_len,
        config.chunk_len,
        config.window_eviction_interval,
        int(config.new_token_ratio_floor * MILLION),
    )


def component_views(memory: KVMemory) -> tuple[ComponentView, ...]:
    return tuple(ComponentView(pool.name, pool.window) for pool in memory.pools)


def peer_maps(memory: KVMemory) -> tuple[PeerMap, ...]:
    anchor = memory.ledgers.anchor.name
    return tuple(PeerMap(anchor, pool, peers[:]) for pool, peers in memory.ledgers.peers.items())


def node_views(tree: RadixTree, memory: KVMemory) -> Iterator[NodeView]:
    """Every node, parents first; the pages of the followers through the peer map."""
    peers = list(memory.ledgers.peers.values())
    for namespace, root in tree.roots.items():
        stack: list[tuple[int, Node]] = [(0, child) for child in root.children.values()]
        while stack:
            parent, node = stack.pop()
            handles = node.handles
            units = (handles, *[[peer[handle] for handle in handles] for peer in peers])
            yield NodeView(
                node.id, parent, namespace, node.start, node.key, units, node.live[:], node.locks[:], node.last_used
            )
            stack += [(node.id, child) for child in node.children.values()]


def pool_views(
    memory: KVMemory, nodes: Sequence[NodeView], records: Sequence[RecordView], outside: Outside
) -> Iterator[PoolView]:
    """The KV pools; what a node or a record holds in a follower is what its handles' peers are."""
    for index, ledger in enumerate(memory.ledgers.ledgers):
        holdings = [*outside.get(ledger.name, ())]
        for node in nodes:
            units = node.units[index]
            if 0 in units:
                units = [unit for unit in units if unit]
            if units:
                holdings.append(Holding(Owner(TREE_KIND, node.id), units, cached=True, locks=node.locks[index]))
        for record in records:
            private = record.units[index][record.protected_len // memory.page_size :]
            holdings.append(Holding(record.owner, [unit for unit in private if unit], cached=False))
        yield _pool_view(ledger, "page", holdings)


def receipt_view(receipt: LockReceipt, holder: Owner) -> ReceiptView:
    """The nodes that a receipt covers, by walking up as many tokens as it says."""
    covers = [list(_covered(receipt.node, length)) for length in receipt.lens]
    return ReceiptView(receipt.id, holder, _id(receipt.node), tuple(covers))


def claims_of(memory: KVMemory, tree: RadixTree, *, ratio: float) -> Claims:
    names = [pool.name for pool in memory.pools]
    return Claims(
        {ledger.name: ledger.num_free for ledger in memory.ledgers.ledgers},
        dict(zip(names, tree.evictable, strict=True)),
        dict(zip(names, tree.protected, strict=True)),
        dict.fromkeys(names, 0),
        int(ratio * MILLION),
    )


def _pool_view(ledger: Ledger, unit: str, holdings: Sequence[Holding]) -> PoolView:
    fences = [Fence(launch, units) for launch, units in ledger.fenced_units.items()]
    return PoolView(ledger.name, unit, ledger.capacity, ledger.free_units, fences, holdings)


def _record_view(record: KVRecord, memory: KVMemory) -> RecordView:
    handles = record.handles[:]
    followers = [[peer[handle] for handle in handles] for peer in memory.ledgers.peers.values()]
    return RecordView(
        Owner(*record.owner),
        record.row,
        record.protected_len,
        record.committed_len,
        record.allocated_len,
        record.frontier,
        (handles, *followers),
        memory.table.read(record.row, 0, len(handles)),
        record.receipt.id,
        _id(record.receipt.node),
    )


def _request_views(engine: Engine) -> Iterable[RequestView]:
    scheduler = engine.scheduler
    places = [("waiting", list(scheduler.waiting)), ("running", scheduler.running)]
    if scheduler.chunked:
        places.append(("chunked", [scheduler.chunked]))
    for place, requests in places:
        for request in requests:
            yield RequestView(
                request.id, place, request.namespace, request.prompt_len, request.num_outputs, request.max_new_tokens
            )


def _covered(bottom: Node, length: int) -> Iterator[int]:
    node: Node | None = bottom
    top = bottom.end - length
    while node is not None and node.end > top:
        yield node.id
        node = node.parent


def _id(node: Node) -> int:
    """The id of a node as the snapshot has it: 0 for a root."""
    return node.id if node.in_tree else 0
