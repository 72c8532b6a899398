"""What an invariant sees of an engine: facts found by walking it, and apart from them its claims.

Engine-neutral: an adapter fills it in from whatever its engine keeps.  Unit ids are pages, slots,
blocks or rows; id 0 is the padding unit and stands for "nothing here".  Lengths and positions are
in tokens.  A part that an engine cannot give is None, and what needs it is not applicable.
"""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, repeat
from operator import itemgetter
from typing import NamedTuple

from invariants.derived import Derived
from invariants.limits import Limits


class Owner(NamedTuple):
    """Who must free a unit: a kind (request, tree, session, transfer, load…) and its ordinal."""

    kind: str
    id: int = 0

    def __str__(self) -> str:
        return (
            f"{self.kind} {NODE_LETTER if self.kind == TREE_KIND else self.kind[0]}{self.id}" if self.id else self.kind
        )


REQUEST_KIND = "request"
SESSION_KIND = "session"
HANDOVER_KIND = "transfer"  # between engines: what goes, until it has come, and what is to come
TREE_KIND = "tree"
BACKUP_KIND = "backup"  # a transfer to the host
LOAD_KIND = "load"  # a transfer from there
TRANSFER_KINDS = frozenset({BACKUP_KIND, LOAD_KIND})
FENCE_KIND = "fence"  # its units and locks wait for a launch
NODE_LETTER = "n"
OUTSIDE_KIND = "pressure"  # a neighbour who takes units of one pool alone
OWNER_KINDS = (REQUEST_KIND, SESSION_KIND, HANDOVER_KIND, BACKUP_KIND, LOAD_KIND)  # of owners with an id
FREE = Owner("free")
FENCE = Owner(FENCE_KIND)


class Holding(NamedTuple):
    """Units that one owner must free.  `cached` ones are the tree's; `locks` counts who reads them."""

    owner: Owner
    units: Sequence[int]
    cached: bool
    locks: int = 0


class Fence(NamedTuple):
    """Units that were freed and may still be read by launch `launch`."""

    launch: int
    units: Sequence[int]


_owner_of_holding = itemgetter(Holding._fields.index("owner"))
_units_of_holding = itemgetter(Holding._fields.index("units"))


@lru_cache
def _all_units(capacity: int) -> frozenset[int]:
    return frozenset(range(1, capacity + 1))


@dataclass(frozen=True)
class PoolView:
    """One pool: its free list in order, its fences, and who holds what.

    A cached block that an engine keeps in its free queue is a cached holding here, not free; if it has
    readers while it stands there, it is both, which is found out.
    """

    name: str
    unit: str
    capacity: int
    free: Sequence[int]
    fenced: Sequence[Fence]
    holdings: Sequence[Holding]

    def claims_by_unit(self) -> dict[int, list[Owner]]:
        """Everyone who claims each unit, free list and fences included; nobody's units have an empty list."""
        claims: dict[int, list[Owner]] = {unit: [] for unit in range(1, self.capacity + 1)}
        for unit in self.free:
            claims.setdefault(unit, []).append(FREE)
        for fence in self.fenced:
            for unit in fence.units:
                claims.setdefault(unit, []).append(FENCE)
        for holding in self.holdings:
            for unit in holding.units:
                claims.setdefault(unit, []).append(holding.owner)
        return claims

    @Derived
    def num_fenced(self) -> int:
        return sum([len(fence.units) for fence in self.fenced]) if self.fenced else 0

    @Derived
    def held(self) -> list[int]:
        """The units of all holdings."""
        return list(chain.from_iterable(map(_units_of_holding, self.holdings)))

    @Derived
    def is_partitioned(self) -> bool:
        """Is each unit claimed once, and nothing else?"""
        num_claims = len(self.free) + len(self.held) + self.num_fenced
        return num_claims == self.capacity and self.owner_of.keys() == _all_units(self.capacity)

    @Derived
    def owner_of(self) -> dict[int, Owner]:
        """One owner per unit; FREE for the free ones.  Where several claim a unit the last holding wins."""
        owners = dict.fromkeys(self.free, FREE)
        for fence in self.fenced:
            owners.update(dict.fromkeys(fence.units, FENCE))
        lens = map(len, map(_units_of_holding, self.holdings))
        holders = chain.from_iterable(map(repeat, map(_owner_of_holding, self.holdings), lens))
        owners.update(zip(self.held, holders, strict=True))
        return owners


class ComponentView(NamedTuple):
    """One kind of KV that a token has: its pool, its window (None: the whole prefix is read) and its page size.

    Components may share a pool.  A page size of 0 is that of the engine's limits.
    """

    pool: str
    window: int | None
    page_size: int = 0


class PeerMap(NamedTuple):
    """`peers[unit of from_pool]` is the unit of to_pool that holds the same tokens, 0 where there is none.

    With `slots` above 1 the map is by slot, slot = unit * slots + offset, on both sides.
    """

    from_pool: str
    to_pool: str
    peers: Sequence[int]
    slots: int = 1

    def by_unit(self) -> Sequence[int]:
        """The peer of each unit; of one whose slots disagree, the largest."""
        if self.slots == 1:
            return self.peers
        return [
            max(self.peers[first : first + self.slots]) // self.slots for first in range(0, len(self.peers), self.slots)
        ]


class NodeView(NamedTuple):
    """A node of the prefix tree; `parent` is 0 under a root.

    Per component: `units` (one per page of the key, 0 for none), whether the engine calls the
    node `live` in it (a tombstone is not), and how many `locks` it counts.  `copies` are its units on the host, none or
    one per page, and `pins` counts the loads that read them; () without a host tier.
    """

    id: int
    parent: int
    namespace: int
    start: int
    key: Sequence[int]
    units: tuple[Sequence[int], ...]
    live: Sequence[bool]
    locks: Sequence[int]
    last_used: int = 0
    copies: tuple[Sequence[int], ...] = ()
    pins: Sequence[int] = ()

    @property
    def end(self) -> int:
        return self.start + len(self.key)


class ReceiptView(NamedTuple):
    """A lock that is out: who holds it, and per component the ids of the nodes that it covers."""

    id: int
    holder: Owner
    node: int
    covers: tuple[Sequence[int], ...]


class RecordView(NamedTuple):
    """The KV of one row: of `committed_len` tokens written, up to `launched_len` being written by passes in flight,
    up to `allocated_len` allocated.  `units` per component, one per page of [0, allocated_len), 0 for none.

    Below `frontier` the private pages of components with a window are gone; a frontier at or below protected_len
    is reported as 0.  `table` is what the row of the request table has in those places, in units of the first
    component's pool; a record without a row, 0, has nothing there.  `receipt` is the id of its lock; `node` where its
    shared prefix ends (0: a root).
    """

    owner: Owner
    row: int
    protected_len: int
    committed_len: int
    launched_len: int
    allocated_len: int
    frontier: int
    units: tuple[Sequence[int], ...]
    table: Sequence[int]
    receipt: int
    node: int


class RequestView(NamedTuple):
    """A request that is not finished, and the place in which it is (waiting, chunked, running…)."""

    id: int
    place: str
    namespace: int
    prompt_len: int
    num_outputs: int
    max_new_tokens: int
    priority: int = 0
    num_failures: int = 0  # passes with it that failed
    age_ms: int | None = None  # since it arrived; None: not known
    awaits: int = 0  # the transfer that it waits for
    session: int = 0  # whose turn it is


class LaunchView(NamedTuple):
    """A forward pass in flight: per entry the request and the positions [start, end) that it computes.

    `units` are, per entry and component, the units that its layers read or write.  Of the requests
    in `given_up` the record that the pass was launched for is gone, so what it computes for them counts for nothing,
    but for those `delivered`: they get their token though they are retracted or preempted while the pass is in flight.
    `sessions` says per entry whose turn it was, and so who may have that record now.  Behind an entry it computes its
    `drafts`, of which it will turn out how many count; () where nobody has any.
    """

    launch: int
    entries: Sequence[tuple[int, int, int]]
    units: Sequence[tuple[Sequence[int], ...]]
    given_up: Sequence[int] = ()
    sessions: Sequence[int] = ()
    drafts: Sequence[Sequence[int]] = ()
    delivered: Sequence[int] = ()


class TransferView(NamedTuple):
    """A copy under way between the device and the host: per component the units here, and those there, pair by pair.

    What it writes is its own, under an owner of the kind BACKUP_KIND or LOAD_KIND and its id; `receipt` is its lock.
    """

    id: int
    to_host: bool
    receipt: int
    here: tuple[Sequence[int], ...]
    there: tuple[Sequence[int], ...]


class SessionView(NamedTuple):
    """A session that is open: the request that has its turn (0: none), and of how many tokens it keeps the KV."""

    id: int
    namespace: int
    turn: int
    kept_len: int
    is_closing: bool


class Claims(NamedTuple):
    """What the engine says of itself; pages by pool.  The ratio is in millionths."""

    free: Mapping[str, int]
    evictable: Mapping[str, int]
    protected: Mapping[str, int]
    reserved: Mapping[str, int]
    new_token_ratio: int
    exact_ratio: float | None = None  # the one that is computed with; None: it is not told


OPTIONAL_PARTS = (
    "nodes",
    "receipts",
    "records",
    "requests",
    "claims",
    "launches",
    "windowed",
    "slot_maps",
    "transfers",
    "sessions",
)


@dataclass(frozen=True)
class Snapshot:
    """One engine between two steps; `host_pools` are, by component, the names of those in which it keeps copies."""

    step: int
    limits: Limits
    components: tuple[ComponentView, ...]
    pools: tuple[PoolView, ...]
    peer_maps: tuple[PeerMap, ...] | None = None
    nodes: tuple[NodeView, ...] | None = None
    receipts: tuple[ReceiptView, ...] | None = None
    records: tuple[RecordView, ...] | None = None
    requests: tuple[RequestView, ...] | None = None
    claims: Claims | None = None
    launches: tuple[LaunchView, ...] | None = None
    is_paused: bool = False
    transfers: tuple[TransferView, ...] | None = None
    host_pools: Sequence[str] = ()
    sessions: tuple[SessionView, ...] | None = None
    is_loading: bool = False  # a load that `transfers` does not show is under way, and requests may wait for it
    untold: frozenset[str] = frozenset()  # the names of the types of events that this engine never tells

    def pool(self, name: str) -> PoolView:
        return self.pool_by_name[name]

    @Derived
    def pool_by_name(self) -> dict[str, PoolView]:
        return {pool.name: pool for pool in self.pools}

    @Derived
    def host_pool_of(self) -> dict[str, str]:
        """The name of the pool on the host by that of the pool here."""
        return {component.pool: name for component, name in zip(self.components, self.host_pools, strict=False)}

    @Derived
    def page_sizes(self) -> tuple[int, ...]:
        """The page size of each component."""
        return tuple([component.page_size or self.limits.page_size for component in self.components])

    @Derived
    def has_fences(self) -> bool:
        return any(pool.fenced for pool in self.pools)

    @Derived
    def windowed(self) -> tuple[int, ...] | None:
        """The components with a window, by index; None where there is none."""
        windows = [component.window for component in self.components]
        return tuple([index for index, window in enumerate(windows) if window is not None]) or None

    @Derived
    def slot_maps(self) -> tuple[PeerMap, ...] | None:
        """The peer maps that are by slot; None where there is none."""
        return tuple([peers for peers in self.peer_maps or () if peers.slots > 1]) or None

    @Derived
    def missing(self) -> frozenset[str]:
        """The parts that this engine does not have."""
        parts = (
            self.nodes,
            self.receipts,
            self.records,
            self.requests,
            self.claims,
            self.launches,
            self.windowed,
            self.slot_maps,
            self.transfers,
            self.sessions,
        )
        missing = [name for name, part in zip(OPTIONAL_PARTS, parts, strict=True) if part is None]
        return self.untold.union(missing if self.peer_maps else [*missing, "peer_maps"])

    @Derived
    def node_by_id(self) -> dict[int, NodeView]:
        return {node.id: node for node in self.nodes or ()}

    @Derived
    def record_by_request(self) -> dict[int, RecordView]:
        return {record.owner.id: record for record in self.records or () if record.owner.kind == "request"}

    @Derived
    def request_by_id(self) -> dict[int, RequestView]:
        return {request.id: request for request in self.requests or ()}

    @Derived
    def session_by_id(self) -> dict[int, SessionView]:
        return {session.id: session for session in self.sessions or ()}

    @Derived
    def launch_by_id(self) -> dict[int, LaunchView]:
        return {view.launch: view for view in self.launches or ()}

    @Derived
    def receipt_by_id(self) -> dict[int, ReceiptView]:
        return {receipt.id: receipt for receipt in self.receipts or ()}

    @Derived
    def fence_receipts(self) -> list[ReceiptView]:
        """The locks of records that are gone, which wait for a launch."""
        return [receipt for receipt in self.receipts or () if receipt.holder.kind == FENCE_KIND]

    def covered_by(self, holders: Set[Owner], component: int) -> set[int]:
        """The ids of the nodes that receipts of these holders cover in a component."""
        receipts = [receipt for receipt in self.receipts or () if receipt.holder in holders]
        return set(chain.from_iterable([receipt.covers[component] for receipt in receipts]))

    @Derived
    def covered(self) -> set[int]:
        """The ids of the nodes that some receipt covers in some component."""
        return set(chain.from_iterable(chain.from_iterable(receipt.covers for receipt in self.receipts or ())))

    @Derived
    def children(self) -> dict[int, list[NodeView]]:
        """Nodes by parent; roots' children under 0."""
        children: dict[int, list[NodeView]] = {}
        for node in self.nodes or ():
            children.setdefault(node.parent, []).append(node)
        return children

    def path(self, node_id: int) -> list[NodeView]:
        """From a node up to a root; ends early where a parent is unknown, or where it would go round."""
        nodes = self.node_by_id
        path: list[NodeView] = []
        node = nodes.get(node_id)
        while node is not None and len(path) < len(nodes):
            path.append(node)
            node = nodes.get(node.parent)
        return path
