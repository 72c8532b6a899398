"""Snapshots of an SGLang scheduler: facts from a walk over its tree, tables and queues, and its own counters."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from swarden.harness.engines.sglang.boot import SglangRelease
from swarden.harness.engines.sglang.config import BOTH, DECODE, WRITE_THROUGH, SglangConfig
from swarden.harness.engines.sglang.forward import SglangEntry, SglangPass
from swarden.harness.engines.sglang.host_tier import SglangHostTier
from swarden.harness.engines.sglang.memory import row_len, sub_allocators
from swarden.harness.engines.sglang.moves import free_units
from swarden.harness.engines.sglang.nodes import MambaNodes, Nodes, RadixNodes, SwaNodes, TreeWalk, UnifiedNodes
from swarden.harness.engines.sglang.requests import SPARE_TOKENS, SglangRequest, held, max_request_len
from swarden.harness.engines.sglang.rust_core import core_of, uncompared
from swarden.harness.engines.sglang.scheduler import BuiltScheduler
from swarden.harness.engines.sglang.sessions import OpenSessions
from swarden.harness.engines.sglang.states import STATE_POOL, STATE_WINDOW, SglangStates, slot_of, slots_of, states_of
from swarden.harness.engines.sglang.transfers import TransferQueues
from swarden.harness.kit.locks import LockMove, watch_locks
from swarden.invariants.events import BACKUP_KIND, HANDOVER_KIND, LOAD_KIND, REQUEST_KIND, SESSION_KIND, Owner
from swarden.invariants.kinds import Place
from swarden.invariants.limits import Limits
from swarden.invariants.view import (
    ComponentView,
    Counters,
    Holding,
    LaunchView,
    PeerMap,
    PoolView,
    ReceiptView,
    RecordView,
    RequestView,
    SessionView,
    Snapshot,
)

MILLION = 1_000_000
SESSION_RECEIPTS = 1 << 32  # added to the id of a session for that of its lock


class Enabled(NamedTuple):
    """What is captured beside a scheduler, if its configuration enables it."""

    host: SglangHostTier | None = None
    sessions: OpenSessions | None = None


class SglangCapture:
    """Walks one scheduler between two steps; nodes are numbered in the order in which they are first seen."""

    def __init__(
        self,
        release: SglangRelease,
        config: SglangConfig,
        built: BuiltScheduler,
        unreported: frozenset[str],
        enabled: Enabled,
    ) -> None:
        self._release, self._config, self._built = release, config, built
        self._unreported = unreported
        self._host, self._sessions = enabled
        self._limits = limits_of(
            config,
            max_request_len(release, config),
            leaves_out_finishing_requests=release.has("finishing_requests_left_out"),
        )
        self._components = components_of(config)
        self._row_offset = 0 if release.has("first_row_is_padding") else 1
        self._queues = TransferQueues(built.scheduler)
        self._tree = nodes_of(release, config, built.memory.tree)
        self._walk = TreeWalk(self._tree, config.page_size, built.namespace_of, self._host)

    def capture(self, step: int, live: Mapping[int, SglangRequest], in_flight: Sequence[SglangPass]) -> Snapshot:
        scheduler, memory = self._built[:2]
        rows, mapping = memory.rows, [] if memory.mapping is None else memory.mapping[:-1].tolist()
        walked = self._walk.walk(self._root, mapping)
        nodes = [known.view for known in walked]
        held_by_pool: list[list[Holding]] = [
            [holding for known in walked if (holding := known.holdings[index]) is not None]
            for index in range(len(self._components))
        ]
        held_rows, records, receipts = [], [], list(self._copy_receipts())
        places = self._places(live)
        for holder in self._holders(live, places):
            record, receipt = self._record(holder, mapping, in_flight)
            records.append(record)
            receipts.append(receipt)
            for component, holdings, units in zip(self._components, held_by_pool, record.units, strict=True):
                if not component.has_states:
                    private = units[-(-record.protected_len // self._config.page_size) :]
                    holdings.append(Holding(record.owner, [unit for unit in private if unit], False))
            held_rows.append(Holding(record.owner, (record.row,), False))
        if self._states is not None:  # a request has a state before it has a row, too
            slots = [(number, slots_of(request.req)) for number, request in live.items()]
            held_by_pool[-1] += [
                Holding(Owner(REQUEST_KIND, number), of_one, False) for number, of_one in slots if of_one
            ]
        free_rows = [int(row) + self._row_offset for row in _listed(rows.free_slots)]
        pools = (
            *self._pools(held_by_pool),
            PoolView("rows", "row", rows.size + getattr(rows, "pre_alloc_size", 0), free_rows, (), held_rows),
            *(() if self._host is None else self._host.views(nodes)),
        )
        with uncompared(core_of(self._built.memory.tree)):  # a difference is a failure of the turn that made it
            counters = self._counters()
        return Snapshot(
            step,
            self._limits,
            self._components,
            pools,
            peer_maps=(PeerMap("full", "swa", mapping, self._config.page_size),) if mapping else (),
            nodes=tuple(nodes),
            receipts=tuple(receipts),
            records=tuple(records),
            requests=tuple([self._request(request, places[request.id]) for request in live.values()]),
            counters=counters,
            launches=tuple([self._launch(one, live) for one in in_flight]),
            is_paused=bool(scheduler._engine_paused),
            host_pools=() if self._host is None else self._host.names,
            sessions=self._session_views(live, records),
            unreported=self._unreported,
        )

    def watch_locks(self, notice: Callable[[int, list[LockMove]], None]) -> None:
        """Report each change of the numbers of locks on nodes from now on."""
        tree, pools = self._built.memory.tree, [component.pool for component in self._components]
        parts = [part for part in (tree, getattr(tree, "inner", None), core_of(tree)) if part is not None]
        watch_locks(parts, lambda: self._walk.locks(self._root, pools), notice)

    def _pools(self, holdings: Sequence[Sequence[Holding]]) -> Iterator[PoolView]:
        """The pool of each component; `holdings` are those of each."""
        free = [free_units(pool) for pool in sub_allocators(self._built.memory.allocator)]
        sizes = [("page", pool.units) for pool in self._config.shape.pools]
        if self._states is not None:
            free.append(self._states.free())
            sizes.append(("slot", self._config.state_slots or 0))
        for component, (unit, size), units, of_pool in zip(self._components, sizes, free, holdings, strict=True):
            yield PoolView(component.pool, unit, size, units, (), of_pool)

    def _counters(self) -> Counters:
        tree, scheduler, page = self._built.memory.tree, self._built.scheduler, self._config.page_size
        has_tracker = self._release.code("NewTokenRatioTracker") is not None
        ratio = scheduler.new_token_ratio_tracker.current if has_tracker else scheduler.new_token_ratio
        available = [pool.available_size() // page for pool in sub_allocators(self._built.memory.allocator)]
        if self._states is not None:
            available.append(self._states.num_available())
        names = [component.pool for component in self._components]
        counters = self._tree.counters
        return Counters(
            free=dict(zip(names, available, strict=True)),
            evictable={name: counters[name].evictable_units(tree, page) for name in names},
            protected={name: counters[name].protected_units(tree, page) for name in names},
            new_token_ratio=int(ratio * MILLION),
        )

    @property
    def _states(self) -> SglangStates | None:
        return states_of(self._built.memory.rows)

    @property
    def _root(self) -> Any:
        """The root of the tree; None on a decode side, which caches no prefixes."""
        return getattr(self._built.memory.tree, "root_node", None)

    def _holders(self, live: Mapping[int, SglangRequest], places: Mapping[int, Place]) -> Iterator["Holder"]:
        """The holders of rows. A turn holds the row of its session from its admission until it ends or is retracted."""
        slots = {held(one.slot, "req_pool_idx"): one for one in self._sessions.slots} if self._sessions else {}
        for request in live.values():
            row = held(request.req, "req_pool_idx")
            if row is None or (row in slots and places[request.id] == Place.WAITING):
                continue
            slot = slots.pop(row).slot if row in slots else request.req
            kind = HANDOVER_KIND if self._queues.is_arriving(request.req) else REQUEST_KIND
            yield Holder(Owner(kind, request.id), request.id, request.req, slot)
        for req in () if self._host is None else self._host.ended():
            yield Holder(Owner(BACKUP_KIND, req.swarden.id), req.swarden.id, req, req)
        for req in self._queues.held:
            yield Holder(Owner(HANDOVER_KIND, req.swarden.id), req.swarden.id, req, req)
        for session, slot in slots.values():
            yield Holder(Owner(SESSION_KIND, session), SESSION_RECEIPTS + session, slot, slot)

    def _session_views(
        self, live: Mapping[int, SglangRequest], records: Sequence[RecordView]
    ) -> tuple[SessionView, ...] | None:
        if self._sessions is None:
            return None
        kept = {record.owner.id: record.committed_len for record in records if record.owner.kind == SESSION_KIND}
        return tuple(self._sessions.views(list(live.values()), kept))

    def _record(
        self, holder: "Holder", mapping: Sequence[int], in_flight: Sequence[SglangPass]
    ) -> tuple[RecordView, ReceiptView]:
        """A record; the release counts the tokens of a pass as committed when it launches the pass."""
        owner, receipt, kv, locker = holder
        page, tree = self._config.page_size, self._built.memory.tree
        row, protected = held(kv, "req_pool_idx"), held(kv, "cache_protected_len")
        launched, allocated = held(kv, "kv_committed_len"), held(kv, "kv_allocated_len")
        if owner.kind == HANDOVER_KIND:
            launched = protected
        passes = in_flight if owner.kind != BACKUP_KIND else ()  # that of a request that has ended is given up
        flying = [entry for one in passes for entry in one.entries if entry.request.req is kv]
        slots = self._built.memory.rows.req_to_token[row, :allocated].tolist()
        full = [slot // page for slot in slots[::page]]
        units = [full]
        if mapping:
            units.append([mapping[slot] // page for slot in slots[::page]])
        frontier = self._tree.frontier(kv)
        if self._config.role == DECODE:  # it takes only the windowed pages that the next token reads
            frontier = max(frontier, page * next((index for index, unit in enumerate(units[-1]) if unit), 0))
        if frontier <= protected:  # the release lifts it to the protected length, and freed nothing below that
            frontier = 0
        lock = self._tree.lock(locker, self._tree.last_node(locker, tree), tree)
        node, root = lock[0], self._root
        bottom = getattr(node, "swarden_id", 0) if node is not None and node is not root else 0
        launched = max([launched, *(entry.end for entry in flying)])
        if self._states is not None:
            units.append(self._states_of(kv, node if bottom else None, protected, launched, len(full)))
        record = RecordView(
            owner=owner,
            row=int(row) + self._row_offset,
            protected_len=protected,
            committed_len=min([entry.start for entry in flying], default=launched),
            launched_len=launched,
            allocated_len=allocated,
            frontiers=[0 if one.window is None or one.has_states else frontier for one in self._components],
            units=tuple(units),
            table=full,
            receipt=receipt,
            node=bottom,
        )
        covers = self._covers(*lock)
        if self._states is not None:
            has_lock = bottom and lock[2] and self._tree.covers_state(node, locker)
            covers = (*covers, [bottom] if has_lock else [])
        return record, ReceiptView(receipt, owner, bottom, covers)

    def _states_of(self, req: Any, node: Any, protected: int, launched: int, count: int) -> list[int]:
        """The states of a record, one per page: that of the node in which its shared part ends, and its own.

        Its own is that after the last token.  While all tokens are shared it is a copy, and has no page here.
        """
        states, page = [0] * count, self._config.page_size
        if node is not None and protected:
            states[(protected - 1) // page] = next(iter(self._tree.state(node)), 0)
        if launched > protected:
            states[(launched - 1) // page] = slot_of(req)
        return states

    def _copy_receipts(self) -> Iterator[ReceiptView]:
        """The locks on nodes that are being copied; their ids are negative, to differ from those of requests."""
        for kind, node, lock in () if self._host is None else self._host.locks():
            number, mark = getattr(node, "swarden_id", 0), self._tree.mark_of(lock)
            covers = self._covers(node, mark, True, lock)
            if self._states is not None:
                covers = (*covers, [number] if self._tree.covers_state(node, lock) else [])
            yield ReceiptView(-2 * number - (kind == LOAD_KIND), Owner(kind, number), number, covers)

    def _covers(self, node: Any, mark: Any, is_windowed: bool, lock: Any = None) -> tuple[Sequence[int], ...]:
        """The nodes that dec_lock_ref will unlock: up to the root, and in the window up to the node with its mark.

        A `lock` names nodes that its release passes over.  The node with which sessions say "no lock" has no parent.
        """
        full: list[int] = []
        swa: list[int] = []
        while getattr(node, "parent", None) is not None:  # the root has none
            number = getattr(node, "swarden_id", 0)
            passes_full, passes_swa = self._tree.passed_over(node, lock)
            if not passes_full:
                full.append(number)
            if is_windowed and not passes_swa:
                swa.append(number)
            is_windowed = is_windowed and not (mark and self._tree.mark(node) == mark)
            node = node.parent
        return (full, swa) if self._config.sliding_window is not None else (full,)

    def _request(self, request: SglangRequest, place: Place) -> RequestView:
        req = request.req
        return RequestView(
            id=request.id,
            place=place,
            namespace=request.namespace,
            prompt_len=len(req.origin_input_ids),
            num_outputs=0 if request.awaits_its_first_pass else len(req.output_ids),
            max_new_tokens=req.sampling_params.max_new_tokens,
            priority=req.priority if getattr(req, "priority", None) is not None else 0,
            session=0 if request.is_hidden else request.session,
        )

    def _places(self, live: Mapping[int, SglangRequest]) -> dict[int, Place]:
        """The place of each request, by its id."""
        scheduler = self._built.scheduler
        places: dict[int, Place] = {}  # by the identity of the release's object
        for batch in [one for one in (scheduler.last_batch, scheduler.running_batch) if one is not None]:
            places.update(dict.fromkeys(map(id, batch.reqs), Place.RUNNING))
        places.update(dict.fromkeys(map(id, scheduler.waiting_queue), Place.WAITING))
        if scheduler.chunked_req is not None:
            places[id(scheduler.chunked_req)] = Place.CHUNKED
        linked = {number: self._queues.place(request.req) for number, request in live.items()}
        return {
            number: places.get(id(live[number].req), Place.LOST) if place is None else place
            for number, place in linked.items()
        }

    def _launch(self, one: SglangPass, live: Mapping[int, SglangRequest]) -> LaunchView:
        sessions = [entry.request.session for entry in one.entries]
        return one.view(self._units, lambda entry: entry.is_held_by(live), sessions=sessions)

    def _units(self, entry: SglangEntry) -> tuple[Sequence[int], ...]:
        """The units that a pass reads or writes for an entry, in each pool."""
        page = self._config.page_size
        of_kv = [tuple(dict.fromkeys(slot // page for slot in slots if slot)) for slots in entry.slots]
        return (*of_kv,) if self._states is None else (*of_kv, tuple(entry.states))


def nodes_of(release: SglangRelease, config: SglangConfig, tree: Any) -> Nodes:
    has_window, has_states = config.sliding_window is not None, config.state_slots is not None
    if release.is_unified(tree):
        return UnifiedNodes(release, has_window=has_window, has_states=has_states)
    return (SwaNodes if has_window else MambaNodes if has_states else RadixNodes)(release)


def components_of(config: SglangConfig) -> tuple[ComponentView, ...]:
    """The components: full attention, a window and recurrent states, as far as the configuration has them."""
    of_kv = tuple([ComponentView(pool.name, pool.window, config.page_size) for pool in config.shape.pools])
    states = ComponentView(STATE_POOL, STATE_WINDOW, config.page_size, has_states=True)
    return of_kv if config.state_slots is None else (*of_kv, states)


class Holder(NamedTuple):
    """The owner of a row, the id of its lock, and the release's objects that have its KV and its lock."""

    owner: Owner
    receipt: int
    kv: Any
    locker: Any


def limits_of(config: SglangConfig, max_request_len: int, *, leaves_out_finishing_requests: bool) -> Limits:
    """The limits; a frontier lags by a page, by the steps between two slides, and by the interval of the eviction."""
    lag = max(config.page_size, config.sliding_window or 0) + config.window_eviction_interval
    return Limits(
        page_size=config.page_size,
        max_running_requests=config.max_running_requests,
        max_context_len=max_request_len,
        chunk_len=config.chunk_len,
        window_slack=2 * config.page_size + lag,
        most_launches=2 if config.overlap else 1,
        decodes_after_abort=1 if config.overlap and not leaves_out_finishing_requests else 0,
        reuses_in_launch_order=True,
        spare_len=SPARE_TOKENS + 1,
        shares_prefixes=config.role == BOTH and config.caches_prefixes,
        writes_through=config.host_ratio is not None and config.write_policy == WRITE_THROUGH,
        closes_idle_sessions=config.streaming_sessions and config.session_timeout_s is not None,
        draft_len=config.draft_len or 0,
        draft_row_len=0 if config.draft_len is None else row_len(config) - max_request_len,
    )


def _listed(values: Any) -> list[Any]:
    return values.tolist() if hasattr(values, "tolist") else list(values)
