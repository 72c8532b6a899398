"""Snapshots of an SGLang scheduler: facts from a walk over its tree, tables and queues, and its own counters."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from swarden.harness.engines.sglang.boot import SglangRelease
from swarden.harness.engines.sglang.capability import SglangPart
from swarden.harness.engines.sglang.config import SglangConfig
from swarden.harness.engines.sglang.forward import SglangEntry
from swarden.harness.engines.sglang.moves import FreeUnits
from swarden.harness.engines.sglang.nodes import CapturedNode, TreeWalk, nodes_of
from swarden.harness.engines.sglang.options import limits_of
from swarden.harness.engines.sglang.parts.pair import BOTH, TransferQueues
from swarden.harness.engines.sglang.parts.rust_core import core_of, uncompared
from swarden.harness.engines.sglang.pools import BuiltScheduler
from swarden.harness.engines.sglang.requests import SglangRequest, SglangRequests, held
from swarden.harness.engines.sglang.states import slot_of, slots_of
from swarden.harness.kit.adapted import Adapted
from swarden.harness.kit.locks import LockMove, watch_locks
from swarden.harness.kit.owners import owner_named
from swarden.harness.kit.tags import VOCABULARY
from swarden.invariants.events import BACKUP_KIND, HANDOVER_KIND, LOAD_KIND, REQUEST_KIND, SESSION_KIND, Owner
from swarden.invariants.following import Following, Peers
from swarden.invariants.kinds import Place
from swarden.invariants.view import Counters, Holding, PeerMap, PoolView, ReceiptView, RecordView, RequestView

MILLION = 1_000_000
SESSION_RECEIPTS = 1 << 32  # added to the id of a session for that of its lock
RESTORE_RECEIPTS = 2 << 32  # added to the id of a request for that of its lock on what is loaded from the host


class SglangFacts(Adapted):
    """Walks one scheduler between two steps, from `walk` on.

    Nodes are numbered in the order in which they are first seen.
    """

    vocabulary = VOCABULARY
    parts: Sequence[SglangPart]
    requests: SglangRequests

    def walk(self, release: SglangRelease, config: SglangConfig, built: BuiltScheduler) -> None:
        """The scheduler has been built, and has its parts."""
        self.release, self.built, (self.scheduler, self.memory, *_) = release, built, built
        self.components, self.limits = config.components, limits_of(release, config)
        self._host = next((part for part in self.parts if part.host_pools), SglangPart())
        self._sizes = config.sizes
        self._first_row = 0 if release.has("first_row_is_padding") else 1
        self._stateful = [component for component in self.components if component.has_states]
        self._queues = TransferQueues(self.scheduler)
        self._tree = nodes_of(release, self.components, self.memory.tree)
        self._walk = TreeWalk(self._tree, self.limits.page_size, built.namespace_of, self._host)
        self._walked: list[CapturedNode] | None = None
        self._free = [FreeUnits(allocator) for allocator in self.memory.allocators]
        self._mapped_at: Any = None  # the tensor of the mapping at the last capture
        self._mapping: list[int] = []
        self._peers: Any = ()

    def audit(self) -> None:
        self._walk.is_audit = True

    def further(self) -> dict[str, Any]:
        is_audit, mapping = self._walk.is_audit, self._mapped()
        walked = self._walk.walk(self._root, mapping)
        if walked is not self._walked:
            self._walked, self._covered = walked, dict[tuple[int, Any, bool], tuple[Sequence[int], ...]]()
            self._nodes = tuple([known.view for known in walked])
            self._cached = [
                [holding for known in walked if (holding := known.holdings[index]) is not None]
                for index in range(len(self.components))
            ]
        live, held_by_pool = self.requests.unfinished, [*map(list, self._cached)]
        held_rows, receipts = list[Holding](), list(self._copy_receipts())
        places, self._records = self._places(live), list[RecordView]()
        for holder in self._holders(live, places):
            record, receipt = self._record(holder, mapping)
            self._records.append(record)
            receipts.append(receipt)
            for component, holdings, units in zip(self.components, held_by_pool, record.units, strict=True):
                if not component.has_states:
                    private = units[-(-record.protected_len // component.page_size) :]
                    holdings.append(Holding(record.owner, [*filter(None, private)], False))
            held_rows.append(Holding(record.owner, (record.row,), False))
        for _ in self._stateful:  # a request has a state before it has a row, too
            slots = [(number, slots_of(request.req)) for number, request in live.items()]
            held_by_pool[-1] += [
                Holding(owner_named(REQUEST_KIND, number), of_one, False) for number, of_one in slots if of_one
            ]
        self._pools = (*self._pool_views(held_by_pool, is_audit), self._rows(held_rows), *self._host.pools(self._nodes))
        with uncompared(core_of(self.memory.tree)):  # a difference is a failure of the turn that made it
            counters = self._counters()
        return {
            "host_pools": self._host.host_pools,
            "peer_maps": (PeerMap("full", "swa", self._peers, self.limits.page_size),) if mapping else (),
            "nodes": self._nodes,
            "receipts": tuple(receipts),
            "requests": tuple([self._request(request, places[request.id]) for request in live.values()]),
            "counters": counters,
            "is_paused": bool(self.scheduler._engine_paused),
        }

    def pools(self) -> Sequence[PoolView]:
        return self._pools

    def records(self) -> Sequence[RecordView]:
        return self._records

    def session_of(self, entry: SglangEntry) -> int:
        return entry.request.session

    def units_in_use(self, entry: SglangEntry) -> tuple[Sequence[int], ...]:
        page = self.limits.page_size
        used = [filter(None, slots) for slots in entry.slots]
        of_kv = [tuple(dict.fromkeys(one if page == 1 else [slot // page for slot in one])) for one in used]
        return (*of_kv, *[tuple(entry.states) for _ in self._stateful])

    def watch_locks(self, notice: Callable[[int, list[LockMove]], None]) -> None:
        """Report each change of the numbers of locks on nodes from now on."""
        tree, pools = self.memory.tree, [component.pool for component in self.components]
        parts = [part for part in (tree, getattr(tree, "inner", None), core_of(tree)) if part is not None]
        watch_locks(parts, lambda: self._walk.locks(self._root, pools), notice)

    def _mapped(self) -> list[int]:
        """The windowed slot of each slot, [] without a window; `_peers` are the same."""
        tensor = self.memory.mapping
        if tensor is None or len(tensor) <= Following.LEAST or self.limits.page_size > 1:
            self._mapping = self._peers = [] if tensor is None else tensor[:-1].tolist()
        elif self._mapped_at is None:
            self._mapped_at, self._mapping = tensor.clone(), tensor[:-1].tolist()
            self._peers = Peers(self._mapping)
        elif changed := {
            slot: int(tensor[slot]) for slot in (tensor != self._mapped_at)[:-1].nonzero().flatten().tolist()
        }:
            for slot, windowed in changed.items():
                self._mapping[slot] = windowed
            self._mapped_at, self._peers = tensor.clone(), self._peers.following(changed)
        return self._mapping

    def _pool_views(self, holdings: Sequence[Sequence[Holding]], is_audit: bool) -> Iterator[PoolView]:
        """The pool of each component; `holdings` are those of each."""
        for component, size, free, of_pool in zip(self.components, self._sizes, self._free, holdings, strict=True):
            noun = "slot" if component.has_states else "page"
            yield PoolView(component.pool, noun, size, free.read(size, is_audit=is_audit), (), of_pool)

    def _rows(self, holdings: Sequence[Holding]) -> PoolView:
        rows = self.memory.rows
        free = [self._row(row) for row in rows.free_slots]
        return PoolView("rows", "row", rows.size + getattr(rows, "pre_alloc_size", 0), free, (), holdings)

    def _row(self, row: Any) -> int:
        """The number of a row, from 1 on."""
        return int(row) + self._first_row

    def _counters(self) -> Counters:
        tree, scheduler, page = self.memory.tree, self.scheduler, self.limits.page_size
        has_tracker = self.release.code("NewTokenRatioTracker") is not None
        ratio = scheduler.new_token_ratio_tracker.current if has_tracker else scheduler.new_token_ratio
        of_pools = {
            component.pool: int(pool.available_size()) // (1 if component.has_states else page)
            for component, pool in zip(self.components, self.memory.allocators, strict=True)
        }
        counters = {name: self._tree.counters[name] for name in of_pools}
        evictable = {name: one.evictable_units(tree, page) for name, one in counters.items()}
        protected = {name: one.protected_units(tree, page) for name, one in counters.items()}
        return Counters(of_pools, evictable, protected, new_token_ratio=int(ratio * MILLION))

    @property
    def _root(self) -> Any:
        """The root of the tree; None on a decode side, which caches no prefixes."""
        return getattr(self.memory.tree, "root_node", None)

    def _holders(self, live: Mapping[int, SglangRequest], places: Mapping[int, Place]) -> Iterator["Holder"]:
        """The holders of rows. A turn holds the row of its session from its admission until it ends or is retracted."""
        slots = {held(one.slot, "req_pool_idx"): one for part in self.parts for one in part.slots}
        for request in live.values():
            row = held(request.req, "req_pool_idx")
            if row is None or (row in slots and places[request.id] == Place.WAITING):
                continue
            slot = slots.pop(row).slot if row in slots else request.req
            kind = HANDOVER_KIND if self._queues.is_arriving(request.req) else REQUEST_KIND
            yield Holder(owner_named(kind, request.id), request.id, request.req, slot)
        for req in [req for part in self.parts for req in part.ended()]:
            yield Holder(owner_named(BACKUP_KIND, req.swarden.id), req.swarden.id, req, req)
        for req in self._queues.held:
            yield Holder(owner_named(HANDOVER_KIND, req.swarden.id), req.swarden.id, req, req)
        for session, slot in slots.values():
            yield Holder(owner_named(SESSION_KIND, session), SESSION_RECEIPTS + session, slot, slot)

    def _record(self, holder: "Holder", mapping: Sequence[int]) -> tuple[RecordView, ReceiptView]:
        """A record; the release counts the tokens of a pass as committed when it launches the pass."""
        owner, receipt, kv, locker = holder
        page, tree = self.limits.page_size, self.memory.tree
        row, protected = held(kv, "req_pool_idx"), held(kv, "cache_protected_len")
        launched, allocated = held(kv, "kv_committed_len"), held(kv, "kv_allocated_len")
        if owner.kind == HANDOVER_KIND:
            launched = protected
        passes = self.in_flight if owner.kind != BACKUP_KIND else ()  # that of a request that has ended is given up
        flying = [entry for one in passes for entry in one.entries if entry.request.req is kv]
        slots, missing = self.memory.rows.req_to_token[row, :allocated].tolist(), self._queues.restored(kv)
        if missing:
            slots[missing.start : missing.stop], protected = [0] * len(missing), missing.start
        slots = slots[::page]
        units = [slots, [*map(mapping.__getitem__, slots)]] if mapping else [slots]
        units = [[slot // page for slot in of_pool] for of_pool in units] if page > 1 else units
        full = units[0]
        frontier = self._tree.frontier(kv)
        frontier = self._queues.frontier(frontier, units[-1], page)
        if frontier <= protected:  # the release lifts it to the protected length, and freed nothing below that
            frontier = 0
        lock = self._tree.lock(locker, self._tree.last_node(locker, tree), tree)
        node = lock[0]
        bottom = getattr(node, "swarden_id", 0)  # neither the root nor None has one
        launched = max([launched, *(entry.end for entry in flying)])
        units += [self._states_of(kv, node if bottom else None, protected, launched, len(full)) for _ in self._stateful]
        record = RecordView(
            owner=owner,
            row=self._row(row),
            protected_len=protected,
            committed_len=min([entry.start for entry in flying], default=launched),
            launched_len=launched,
            allocated_len=allocated,
            frontiers=[missing.stop if one.window is None or one.has_states else frontier for one in self.components],
            units=tuple(units),
            table=full,
            receipt=receipt,
            node=bottom,
        )
        is_locked = bottom and lock[2]
        covers = self._covered.get((bottom, *lock[1:])) if bottom else None
        if covers is None:
            covers = self._covered[bottom, *lock[1:]] = self._covers(*lock)
        of_state = [[bottom] if is_locked and self._tree.covers_state(node, locker) else [] for _ in self._stateful]
        return record, ReceiptView(receipt, owner, bottom, (*covers, *of_state))

    def _states_of(self, req: Any, node: Any, protected: int, launched: int, count: int) -> list[int]:
        """The states of a record, one per page: that of the node in which its shared part ends, and its own.

        Its own is that after the last token.  While all tokens are shared it is a copy, and has no page here.
        """
        states, page = [0] * count, self.limits.page_size
        if node is not None and protected:
            states[(protected - 1) // page] = next(iter(self._tree.state(node)), 0)
        if launched > protected:
            states[(launched - 1) // page] = slot_of(req)
        return states

    def _copy_receipts(self) -> Iterator[ReceiptView]:
        """The locks on nodes that are being copied; their ids are negative, to differ from those of requests."""
        for kind, node, lock in self._host.locks():
            number, mark = getattr(node, "swarden_id", 0), self._tree.mark_of(lock)
            covers = self._covers(node, mark, True, lock)
            of_state = [[number] if self._tree.covers_state(node, lock) else [] for _ in self._stateful]
            yield ReceiptView(-2 * number - (kind == LOAD_KIND), Owner(kind, number), number, (*covers, *of_state))
        for number, locker in self._queues.restore_locks():
            lock = self._tree.lock(locker, self._tree.last_node(locker, self.memory.tree), self.memory.tree)
            bottom = getattr(lock[0], "swarden_id", 0)
            yield ReceiptView(RESTORE_RECEIPTS + number, owner_named(LOAD_KIND, number), bottom, self._covers(*lock))

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
        return (full, swa)[: len(self.components) - len(self._stateful)]

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
        scheduler = self.scheduler
        places: dict[int, Place] = {}  # by the identity of the release's object
        for batch in [one for one in (scheduler.last_batch, scheduler.running_batch) if one is not None]:
            places.update(dict.fromkeys(map(id, batch.reqs), Place.RUNNING))
        waiting = (*scheduler.waiting_queue, *scheduler.grammar_manager.grammar_queue)
        places.update(dict.fromkeys(map(id, waiting), Place.WAITING))
        if scheduler.chunked_req is not None:
            places[id(scheduler.chunked_req)] = Place.CHUNKED
        if scheduler.disaggregation_mode.value != BOTH:
            linked = {id(request.req): self._queues.place(request.req) for request in live.values()}
            places |= {req: place for req, place in linked.items() if place is not None}
        return {number: places.get(id(request.req), Place.LOST) for number, request in live.items()}


class Holder(NamedTuple):
    """The owner of a row, the id of its lock, and the release's objects that have its KV and its lock."""

    owner: Owner
    receipt: int
    kv: Any
    locker: Any
