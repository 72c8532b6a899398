"""The state of an engine as invariants see it: facts found by walking its structures, and apart from them its counters.

The types know no engine: an adapter fills them in from the structures of its engine.  Unit ids are pages,
slots, blocks or rows; id 0 is the padding unit and means "no unit".  Lengths and positions are in tokens.
A part that an engine cannot provide is None, and an invariant that needs it is not applicable.
"""

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, fields
from functools import lru_cache, partial
from itertools import chain, compress, repeat
from operator import attrgetter, is_, itemgetter
from typing import NamedTuple

from swarden.invariants.derived import Derived, index_of, indexes_by_part
from swarden.invariants.events import ABSENT, FENCE_KIND, HANDOVER_KIND, REQUEST_KIND, Owner
from swarden.invariants.limits import Limits

FREE = Owner("free")
FENCE = Owner(FENCE_KIND)


class Holding(NamedTuple):
    """Units that one owner must free.  `cached`: they belong to the tree; `locks` counts their readers."""

    owner: Owner
    units: Sequence[int]
    cached: bool
    locks: int = 0


class Fence(NamedTuple):
    """Units that were freed, but that launch `launch` may still read.

    `read` are cached units that the launch may still read; the engine counts the launch as their reader.
    """

    launch: int
    units: Sequence[int]
    read: Sequence[int] = ()


_owner_of_holding = itemgetter(Holding._fields.index("owner"))
_units_of_holding = itemgetter(Holding._fields.index("units"))


@lru_cache
def _all_units(capacity: int) -> frozenset[int]:
    return frozenset(range(1, capacity + 1))


@dataclass(frozen=True)
class PoolView:
    """One pool: its free list in order, its fences, and the units that each owner holds.

    `unit` is the noun for its units (page, row, slot, block), and `capacity` their number without the padding unit. If
    memory moves between the groups of layers, each group has a pool with a unit for all memory that it can get, and
    ABSENT owns the units whose memory it does not have; a further pool has the moving memory, with the group as its
    owner. A cached block that an engine keeps in its free queue is a cached holding here, not free.  List such a block
    as both if it has readers: it is in use and could be taken, which a law reports.  The cached units of a pool that
    `outlasts_drains` stay cached over a drain: those of CPU memory that an engine cannot reset.
    """

    name: str
    unit: str
    capacity: int
    free: Sequence[int]
    fenced: Sequence[Fence]
    holdings: Sequence[Holding]
    outlasts_drains: bool = False

    def owners_by_unit(self) -> dict[int, list[Owner]]:
        """By unit, every owner, free list and fence that has it; a leaked unit has an empty list."""
        owners: dict[int, list[Owner]] = {unit: [] for unit in range(1, self.capacity + 1)}
        for unit in self.free:
            owners.setdefault(unit, []).append(FREE)
        for fence in self.fenced:
            for unit in fence.units:
                owners.setdefault(unit, []).append(FENCE)
        for holding in self.holdings:
            for unit in holding.units:
                owners.setdefault(unit, []).append(holding.owner)
        return owners

    @Derived
    def num_fenced(self) -> int:
        return sum([len(fence.units) for fence in self.fenced]) if self.fenced else 0

    @Derived
    def num_cached(self) -> int:
        return sum([len(holding.units) for holding in self.holdings if holding.cached])

    @Derived
    def cached(self) -> list[int]:
        """The units of the tree."""
        return list(chain.from_iterable([holding.units for holding in self.holdings if holding.cached]))

    @Derived
    def num_absent(self) -> int:
        return sum([len(holding.units) for holding in self.holdings if holding.owner == ABSENT])

    @Derived
    def held(self) -> list[int]:
        """The units of all holdings."""
        return list(chain.from_iterable(map(_units_of_holding, self.holdings)))

    @Derived
    def is_partitioned(self) -> bool:
        """Does each unit of the pool have exactly one owner, and no unit outside the pool any?"""
        num_units = len(self.free) + len(self.held) + self.num_fenced
        return num_units == self.capacity == len(owners := self.owner_of) and _all_units(num_units).issuperset(owners)

    @Derived
    def owner_of(self) -> Mapping[int, Owner]:
        """One owner per unit, FREE or FENCE included.  If a unit has several owners, the last holding wins."""
        owners = dict.fromkeys(self.free, FREE)
        for fence in self.fenced:
            owners.update(dict.fromkeys(fence.units, FENCE))
        lens = map(len, map(_units_of_holding, self.holdings))
        holders = chain.from_iterable(map(repeat, map(_owner_of_holding, self.holdings), lens))
        owners.update(zip(self.held, holders, strict=True))
        return owners

    @Derived
    def moved_since(self) -> "tuple[PoolView, Set[int]] | None":
        """The view that this one follows, and the units that are not where they were in it; None: not known."""
        return None


class ComponentView(NamedTuple):
    """One kind of KV that a token has: its pool, its window (None: the whole prefix is read) and its page size.

    Components may share a pool.  A component that `has_states` keeps the state after a token, not the KV of each: a
    page holds the state after the last token computed in it, and may be missing.  A token reads the state that the
    token before it left, so the window is 2.  A component that `is_ring` has only slots for the window: position p is
    in slot p mod window, and the table of a request has the pages of these slots, all of them private.
    """

    pool: str
    window: int | None
    page_size: int
    has_states: bool = False
    is_ring: bool = False

    def slot_len(self, length: int) -> int:
        """The slots that a prefix of this length needs."""
        return min(length, self.window) if self.is_ring and self.window is not None else length

    def page_index(self, position: int) -> int:
        """The index in the table of a request at which the page of a position is."""
        slot = position % self.window if self.is_ring and self.window is not None else position
        return slot // self.page_size


class PeerMap(NamedTuple):
    """`peers[unit of from_pool]` is the unit of to_pool that holds the same tokens, 0 where there is none.

    With `slots` above 1 the map is by slot, slot = unit * slots + offset, on both sides.
    """

    from_pool: str
    to_pool: str
    peers: Sequence[int]
    slots: int = 1

    def by_unit(self) -> Sequence[int]:
        """The peer of each unit; the largest peer if its slots have peers in several units."""
        if self.slots == 1:
            return self.peers
        return [max(mapped) // self.slots for mapped in self.slots_by_unit()]

    def slots_by_unit(self) -> Iterable[tuple[int, ...]]:
        """The peers of the slots of each unit."""
        return zip(*[iter(self.peers)] * self.slots, strict=False)


class NodeView(NamedTuple):
    """A node of the prefix tree; `parent` is 0 for a child of a root.

    `key` are its tokens, from position `start` on; each namespace has a root, and shares no prefix with another.
    A higher `last_used` is a later use.
    Per component: `units` (one per page of the key, 0 for none), whether the engine calls the node `live`
    (a tombstone is not), and the number of `locks` that the engine counts.  Also per component, or () without a host
    tier: `copies`, its units on the host (none, or one per page; of states at least that of the last page), and `pins`,
    the number of loads that read them.
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
    """A lock that was not returned yet: its holder, and per component the ids of the nodes that it covers."""

    id: int
    holder: Owner
    node: int
    covers: tuple[Sequence[int], ...]


class RecordView(NamedTuple):
    """The KV of one row: [0, committed_len) is written, passes in flight write up to `launched_len`, and pages are
    allocated up to `allocated_len`.  `units` has, per component, one unit per page of [0, allocated_len), 0 for none,
    or of a ring one per page of its slots.

    [0, protected_len) is shared with the tree; `node` is the node in which it ends (0: a root), and `receipt` the id of
    the lock on it.  `frontiers` has, per component, the position below which private pages were freed, 0 if none were,
    as up to protected_len; without a window, up to which the KV of a transfer is loaded from the host.  `table` is the
    content of row `row` of the request table, one unit of the first component's pool per page; a record without a row
    has `row` 0 and an empty table.

    SGLang has cache_protected_len, swa_evicted_seqlen and kv_allocated_len, vLLM the tables of req_to_blocks.  Both
    count the tokens of a pass when they launch it: kv_committed_len and num_computed_tokens are `launched_len` here.
    """

    owner: Owner
    row: int
    protected_len: int
    committed_len: int
    launched_len: int
    allocated_len: int
    frontiers: Sequence[int]
    units: tuple[Sequence[int], ...]
    table: Sequence[int] = ()
    receipt: int = 0
    node: int = 0


class RequestView(NamedTuple):
    """An unfinished request, and its place (see `Place`); `num_outputs` are the output tokens that it has so far."""

    id: int
    place: str
    namespace: int
    prompt_len: int
    num_outputs: int
    max_new_tokens: int
    priority: int = 0
    num_failures: int = 0  # failed passes that computed it
    age_ms: int | None = None  # since it arrived; None: not known
    awaits: int = 0  # the id of the load from the host that it waits for
    session: int = 0  # the id of the session of which it is a turn
    num_accepted: int | None = None  # the tokens that its grammar has accepted; None: it has none, or not yet


class LaunchView(NamedTuple):
    """A forward pass in flight: per entry the request and the positions [start, end) that it computes.

    `units` are, per entry and component, the units that its layers read or write.  The requests in `given_up` released
    the record that the pass was launched for, so their results are stale, or are `rewound`: they keep the record, but
    were taken back to a position before that of the pass.  Those in `delivered` get their token
    even if they are retracted or preempted while the pass is in flight.  `sessions` has, per entry, the session of
    which the request was a turn (0: none): that session or its next turn may have the record now.  `drafts` are, per
    entry, the draft tokens that the pass computes after it; () if no entry has any.
    """

    launch: int
    entries: Sequence[tuple[int, int, int]]
    units: Sequence[tuple[Sequence[int], ...]]
    given_up: Sequence[int] = ()
    sessions: Sequence[int] = ()
    drafts: Sequence[Sequence[int]] = ()
    delivered: Sequence[int] = ()
    rewound: Sequence[int] = ()


class CopyJobView(NamedTuple):
    """A copy in progress between the device and the host.

    Per component, `here` are the units on the device and `there` those on the host, pair by pair.  The units that
    it writes are owned by Owner(BACKUP_KIND or LOAD_KIND, id).  `receipt` is the id of its lock.
    """

    id: int
    to_host: bool
    receipt: int
    here: tuple[Sequence[int], ...]
    there: tuple[Sequence[int], ...]


class SessionView(NamedTuple):
    """An open session: the request that is its current turn (0: none), and the length of the KV that it keeps.

    If `is_closing`, it is closed when its turn has ended.
    """

    id: int
    namespace: int
    turn: int
    kept_len: int
    is_closing: bool


class CachedBlocks(NamedTuple):
    """The blocks of a group in one tier, as the hashes of the engine's KV events.

    `cached` are the blocks that the engine has cached, `reported` those that a router assumes to be cached after all
    events so far.  `moving` blocks are being copied between the tiers, with an event at the begin or at the end.
    `group` is an index into Snapshot.components.
    """

    group: int
    on_host: bool
    cached: frozenset[int]
    reported: frozenset[int]
    moving: frozenset[int] = frozenset()


class Counters(NamedTuple):
    """The engine's own counters: units by pool, and the new-token ratio in millionths."""

    free: Mapping[str, int]
    evictable: Mapping[str, int]
    protected: Mapping[str, int]
    new_token_ratio: int
    exact_ratio: float | None = None  # the unrounded ratio, as a fraction; None: not known


@lru_cache
def _page_sizes(components: tuple[ComponentView, ...]) -> tuple[int, ...]:
    return tuple([component.page_size for component in components])


@lru_cache
def _windowed(components: tuple[ComponentView, ...]) -> tuple[int, ...] | None:
    return tuple([index for index, component in enumerate(components) if component.window is not None]) or None


@lru_cache
def _stateful(components: tuple[ComponentView, ...]) -> tuple[int, ...] | None:
    return tuple([index for index, component in enumerate(components) if component.has_states]) or None


@lru_cache
def _missing(are_missing: tuple[bool, ...], has_peers: bool, unreported: frozenset[str]) -> frozenset[str]:
    return unreported.union(compress(OPTIONAL_PARTS, are_missing), () if has_peers else ("peer_maps",))


@dataclass(frozen=True)
class Snapshot:
    """One engine between two steps; `host_pools` are, per component, the names of the pools for copies on the host.

    `awaited`, `delivered` and `due_transfers` are of transfers between engines.  An awaited page that its record does
    not have is a 0.  A message that was lost is never read.  `unreported` has the names of the types of events that
    this engine never reports, and of the invariants that would compare its adapter with itself, so that they could not
    fail.
    """

    step: int
    limits: Limits
    components: tuple[ComponentView, ...]
    pools: tuple[PoolView, ...]
    peer_maps: tuple[PeerMap, ...] | None = None
    nodes: tuple[NodeView, ...] | None = None
    receipts: tuple[ReceiptView, ...] | None = None
    records: tuple[RecordView, ...] | None = None
    requests: tuple[RequestView, ...] | None = None
    counters: Counters | None = None
    launches: tuple[LaunchView, ...] | None = None
    is_paused: bool = False
    copy_jobs: tuple[CopyJobView, ...] | None = None
    host_pools: Sequence[str] = ()
    sessions: tuple[SessionView, ...] | None = None
    cached_blocks: tuple[CachedBlocks, ...] | None = None
    awaited: Mapping[int, tuple[Sequence[int], ...]] | None = None  # units whose KV arrives: by request, per component
    delivered: frozenset[int] | None = None  # requests whose KV was all sent; the other side has read each message
    # Requests whose KV has all arrived, and of which the engine takes note in its next step at the latest.
    due_transfers: frozenset[int] | None = None
    # Of an engine without nodes: by request, per component the unit of each page of its tokens that it can find in the
    # cache, 0 for none; and the same of its host memory, 1 for a page.
    cached_columns: Mapping[int, tuple[Sequence[int], ...]] | None = None
    offloaded_columns: Mapping[int, tuple[Sequence[int], ...]] | None = None
    is_loading: bool = False  # a load that is not in `copy_jobs` is in progress, and requests may wait for it
    unreported: frozenset[str] = frozenset()

    def pool(self, name: str) -> PoolView:
        return self.pool_by_name[name]

    @index_of("pools")
    def pool_by_name(self) -> dict[str, PoolView]:
        return {pool.name: pool for pool in self.pools}

    @Derived
    def host_pool_of(self) -> dict[str, str]:
        """The name of the host pool of each device pool, by the name of the device pool."""
        return {component.pool: name for component, name in zip(self.components, self.host_pools, strict=False)}

    @Derived
    def page_sizes(self) -> tuple[int, ...]:
        """The page size of each component."""
        return _page_sizes(self.components)

    @index_of("pools")
    def has_fences(self) -> bool:
        return any(pool.fenced for pool in self.pools)

    @Derived
    def windowed(self) -> tuple[int, ...] | None:
        """The indices of the components with a window; None if there is none."""
        return _windowed(self.components)

    @Derived
    def stateful(self) -> tuple[int, ...] | None:
        """The indices of the components of states; None if there is none."""
        return _stateful(self.components)

    @Derived
    def slot_maps(self) -> tuple[PeerMap, ...] | None:
        """The peer maps by slot; None if there is none."""
        return tuple([peers for peers in self.peer_maps or () if peers.slots > 1]) or None

    @Derived
    def missing(self) -> frozenset[str]:
        """The parts and the types of events that this engine does not provide."""
        return _missing(tuple(map(_is_none, _optional_parts(self))), bool(self.peer_maps), self.unreported)

    @index_of("nodes")
    def node_by_id(self) -> dict[int, NodeView]:
        return {node.id: node for node in self.nodes or ()}

    @index_of("records")
    def record_by_request(self) -> dict[int, RecordView]:
        return {record.owner.id: record for record in self.records or () if record.owner.kind == REQUEST_KIND}

    @index_of("records")
    def transfer_records(self) -> dict[int, RecordView]:
        """The records of transfers between engines, by request."""
        return {record.owner.id: record for record in self.records or () if record.owner.kind == HANDOVER_KIND}

    @index_of("requests")
    def request_by_id(self) -> dict[int, RequestView]:
        return {request.id: request for request in self.requests or ()}

    @index_of("sessions")
    def session_by_id(self) -> dict[int, SessionView]:
        return {session.id: session for session in self.sessions or ()}

    @index_of("launches")
    def launch_by_id(self) -> dict[int, LaunchView]:
        return {view.launch: view for view in self.launches or ()}

    @index_of("receipts")
    def receipt_by_id(self) -> dict[int, ReceiptView]:
        return {receipt.id: receipt for receipt in self.receipts or ()}

    @index_of("receipts")
    def fence_receipts(self) -> list[ReceiptView]:
        """The locks that released records left to a fence, until a launch has completed."""
        return [receipt for receipt in self.receipts or () if receipt.holder.kind == FENCE_KIND]

    def covered_by(self, holders: Set[Owner], component: int) -> set[int]:
        """The ids of the nodes that receipts of `holders` cover in a component."""
        receipts = [receipt for receipt in self.receipts or () if receipt.holder in holders]
        return set(chain.from_iterable([receipt.covers[component] for receipt in receipts]))

    @index_of("receipts")
    def covered(self) -> set[int]:
        """The ids of the nodes that any receipt covers in any component."""
        return set(chain.from_iterable(chain.from_iterable(receipt.covers for receipt in self.receipts or ())))

    @index_of("nodes")
    def children(self) -> dict[int, list[NodeView]]:
        """Nodes by parent id; children of roots under 0."""
        children: dict[int, list[NodeView]] = {}
        for node in self.nodes or ():
            children.setdefault(node.parent, []).append(node)
        return children

    @index_of("nodes")
    def _paths(self) -> dict[int, Sequence[NodeView]]:
        return {}

    def path(self, node_id: int) -> Sequence[NodeView]:
        """The nodes from `node_id` up to a root; ends early at an unknown parent, or in a cycle."""
        path = self._paths.get(node_id)
        if path is None:
            nodes, above = self.node_by_id, list[NodeView]()
            node = nodes.get(node_id)
            while node is not None and len(above) < len(nodes):
                above.append(node)
                node = nodes.get(node.parent)
            path = self._paths[node_id] = tuple(above)
        return path


FIELDS = {part.name for part in fields(Snapshot)}
OPTIONAL_PARTS = (
    *(part.name for part in fields(Snapshot) if part.default is None),
    *("windowed", "stateful", "slot_maps"),
)
_optional_parts, _is_none = attrgetter(*OPTIONAL_PARTS), partial(is_, None)
INDEXES = indexes_by_part(Snapshot)
