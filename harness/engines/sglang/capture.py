"""Snapshots of an SGLang scheduler: facts from a walk over its tree, tables and queues, and its own counters."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from harness.engines.sglang.boot import Release
from harness.engines.sglang.config import DECODE, SglangConfig
from harness.engines.sglang.forward import Pass
from harness.engines.sglang.host_tier import HOST_POOLS, HostTier
from harness.engines.sglang.moves import free_units
from harness.engines.sglang.requests import SPARE_TOKENS, Request, held, max_request_len
from harness.engines.sglang.scheduler import Built
from harness.engines.sglang.transfers import TransferQueues
from invariants.kinds import Place
from invariants.limits import Limits
from invariants.view import (
    HANDOVER_KIND,
    LOAD_KIND,
    REQUEST_KIND,
    TREE_KIND,
    ComponentView,
    Counters,
    Holding,
    LaunchView,
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


class SglangCapture:
    """Walks one scheduler between two steps; nodes are numbered in the order in which they are first seen."""

    def __init__(
        self,
        release: Release,
        config: SglangConfig,
        built: Built,
        unreported: frozenset[str],
        host: HostTier | None,
    ) -> None:
        self._release, self._config, self._built = release, config, built
        self._unreported, self._host = unreported, host
        self._page = config.page_size
        self._limits = limits_of(config, max_request_len(release, config))
        self._components = (ComponentView("full", None), ComponentView("swa", config.sliding_window + 1))
        self._row_offset = 0 if release.has("first_row_is_padding") else 1
        self._last_node = 0
        self._queues = TransferQueues(built.scheduler)
        self._tree = nodes_of(release, built.memory.tree)

    def capture(self, step: int, live: Mapping[int, Request], in_flight: Sequence[Pass]) -> Snapshot:
        scheduler, (rows, allocator, _) = self._built[:2]
        page, config = self._page, self._config
        mapping = allocator.full_to_swa_index_mapping[:-1].tolist()
        nodes = list(self._nodes(mapping))
        held_full, held_swa = [
            [
                Holding(Owner(TREE_KIND, node.id), units, True, node.locks[index])
                for node in nodes
                if (units := [unit for unit in node.units[index] if unit])
            ]
            for index in (0, 1)
        ]
        held_rows, records, receipts = [], [], list(self._copy_receipts())
        for request in live.values():
            if held(request.req, "req_pool_idx") is None:
                continue
            record, receipt = self._record(request, mapping, in_flight)
            records.append(record)
            receipts.append(receipt)
            private = -(-record.protected_len // page)
            held_full.append(Holding(record.owner, record.units[0][private:], False))
            held_swa.append(Holding(record.owner, [unit for unit in record.units[1][private:] if unit], False))
            held_rows.append(Holding(record.owner, (record.row,), False))
        free_rows = [int(row) + self._row_offset for row in _listed(rows.free_slots)]
        full, swa = allocator.full_attn_allocator, allocator.swa_attn_allocator
        pools = (
            PoolView("full", "page", config.full_pages, free_units(full), (), held_full),
            PoolView("swa", "page", config.swa_pages, free_units(swa), (), held_swa),
            PoolView("rows", "row", rows.size + getattr(rows, "pre_alloc_size", 0), free_rows, (), held_rows),
            *(() if self._host is None else self._host.views(nodes)),
        )
        return Snapshot(
            step,
            self._limits,
            self._components,
            pools,
            (PeerMap("full", "swa", mapping, page),),
            tuple(nodes),
            tuple(receipts),
            tuple(records),
            tuple([self._request(request) for request in live.values()]),
            self._counters(),
            tuple([self._launch(one, live) for one in in_flight]),
            bool(scheduler._engine_paused),
            host_pools=() if self._host is None else HOST_POOLS,
            unreported=self._unreported,
        )

    def _counters(self) -> Counters:
        allocator, tree, scheduler, page = *self._built.memory[1:], self._built.scheduler, self._page
        has_tracker = self._release.part("NewTokenRatioTracker") is not None
        ratio = scheduler.new_token_ratio_tracker.current if has_tracker else scheduler.new_token_ratio
        return Counters(
            {"full": allocator.full_available_size() // page, "swa": allocator.swa_available_size() // page},
            {"full": int(tree.full_evictable_size()) // page, "swa": int(tree.swa_evictable_size()) // page},
            {"full": int(tree.full_protected_size()) // page, "swa": int(tree.swa_protected_size()) // page},
            {"full": 0, "swa": 0},
            int(ratio * MILLION),
        )

    @property
    def _root(self) -> Any:
        """The root of the tree; None on a decode side, which caches no prefixes."""
        return getattr(self._built.memory.tree, "root_node", None)

    def _nodes(self, mapping: Sequence[int]) -> Iterator[NodeView]:
        page = self._page
        stack = [(0, 0, self._root)]
        while stack:
            parent, start, above = stack.pop()
            for node in above.children.values() if above is not None else ():
                number = getattr(node, "swarden_id", 0)
                if not number:
                    self._last_node = number = node.swarden_id = self._last_node + 1
                slots, windowed, live, locks = self._tree.parts(node, mapping)
                units = ([slot // page for slot in slots[::page]], [slot // page for slot in windowed[::page]])
                key = list(node.key.token_ids)[: len(node.key)]
                namespace = self._built.namespace_of(node.key.extra_key)
                copies, pins = ((), ()) if self._host is None else self._host.copies(node)
                yield NodeView(number, parent, namespace, start, key, units, live, locks, 0, copies, pins)
                stack.append((number, start + len(key), node))

    def _record(
        self, request: Request, mapping: Sequence[int], in_flight: Sequence[Pass]
    ) -> tuple[RecordView, ReceiptView]:
        """A record; the release counts the tokens of a pass as committed when it launches the pass."""
        req, page = request.req, self._page
        is_arriving = self._queues.is_arriving(req)
        owner = Owner(HANDOVER_KIND if is_arriving else REQUEST_KIND, request.id)
        row, protected = held(req, "req_pool_idx"), held(req, "cache_protected_len")
        launched, allocated = held(req, "kv_committed_len"), held(req, "kv_allocated_len")
        if is_arriving:
            launched = protected
        starts = [entry.start for one in in_flight for entry in one.entries if entry.request is request]
        slots = self._built.memory.rows.req_to_token[row, :allocated].tolist()
        full = [slot // page for slot in slots[::page]]
        swa = [mapping[slot] // page for slot in slots[::page]]
        frontier = self._tree.frontier(req)
        if is_arriving or self._config.role == DECODE:  # it takes only the windowed pages that the next token reads
            frontier = max(frontier, page * next((index for index, unit in enumerate(swa) if unit), 0))
        if frontier <= protected:  # the release lifts it to the protected length, and freed nothing below that
            frontier = 0
        node = self._tree.last_node(req, self._built.memory.tree)
        root = self._root
        bottom = getattr(node, "swarden_id", 0) if node is not None and node is not root else 0
        record = RecordView(
            owner,
            int(row) + self._row_offset,
            protected,
            min(starts, default=launched),
            launched,
            allocated,
            frontier,
            (full, swa),
            full,
            request.id,
            bottom,
        )
        return record, ReceiptView(
            request.id, owner, bottom, self._covers(*self._tree.lock(req, node, self._built.memory.tree))
        )

    def _copy_receipts(self) -> Iterator[ReceiptView]:
        """The locks on nodes that are being copied; their ids are negative, to differ from those of requests."""
        for kind, node, lock in () if self._host is None else self._host.locks():
            number, mark = getattr(node, "swarden_id", 0), self._tree.mark_of(lock)
            covers = self._covers(node, mark, True, lock)
            yield ReceiptView(-2 * number - (kind == LOAD_KIND), Owner(kind, number), number, covers)

    def _covers(self, node: Any, mark: Any, is_windowed: bool, lock: Any = None) -> tuple[list[int], list[int]]:
        """The nodes that dec_lock_ref will unlock: up to the root, and in the window up to the node with its mark.

        A `lock` names nodes that its release passes over.
        """
        root = self._root
        full: list[int] = []
        swa: list[int] = []
        while node is not None and node is not root:
            number = getattr(node, "swarden_id", 0)
            passes_full, passes_swa = self._tree.passed_over(node, lock)
            if not passes_full:
                full.append(number)
            if is_windowed and not passes_swa:
                swa.append(number)
            is_windowed = is_windowed and not (mark and self._tree.mark(node) == mark)
            node = node.parent
        return full, swa

    def _request(self, request: Request) -> RequestView:
        req = request.req
        return RequestView(
            request.id,
            self._place(req),
            request.namespace,
            len(req.origin_input_ids),
            0 if request.awaits_its_first_pass else len(req.output_ids),
            req.sampling_params.max_new_tokens,
            req.priority if getattr(req, "priority", None) is not None else 0,
        )

    def _place(self, req: Any) -> Place:
        scheduler = self._built.scheduler
        if (place := self._queues.place(req)) is not None:
            return place
        batches = [scheduler.running_batch, scheduler.last_batch]
        if req is scheduler.chunked_req:
            return Place.CHUNKED
        if any(req is one for one in scheduler.waiting_queue):
            return Place.WAITING
        if any(req is one for batch in batches if batch is not None for one in batch.reqs):
            return Place.RUNNING
        return Place.LOST

    def _launch(self, one: Pass, live: Mapping[int, Request]) -> LaunchView:
        page = self._page
        units = [
            tuple([tuple(dict.fromkeys(slot // page for slot in slots if slot)) for slots in entry.slots])
            for entry in one.entries
        ]
        given_up = [entry.request.id for entry in one.entries if not entry.is_held_by(live)]
        return LaunchView(one.launch, [entry.ids for entry in one.entries], units, given_up)


def nodes_of(release: Release, tree: Any) -> "_UnifiedNodes | _SwaNodes":
    return _UnifiedNodes(release) if release.is_unified(tree) else _SwaNodes(release)


class Parts(NamedTuple):
    """A node's slots in both pools (0 for none), and per pool whether it is live and how many locks it has."""

    slots: Sequence[int]
    windowed: Sequence[int]
    live: tuple[bool, bool]
    locks: tuple[int, int]


class _SwaNodes:
    """The nodes and locks of SWARadixCache."""

    def __init__(self, release: Release) -> None:
        self._swa = getattr(release.part("ComponentType"), "SWA", None)

    def parts(self, node: Any, mapping: Sequence[int]) -> Parts:
        slots, locks = node.value.tolist(), (node.full_lock_ref, node.swa_lock_ref)
        return Parts(slots, [mapping[slot] for slot in slots], (True, not node.swa_tombstone), locks)

    def frontier(self, req: Any) -> int:
        return int(held(req, "swa_evicted_seqlen"))

    def last_node(self, req: Any, tree: Any) -> Any:
        return req.last_node

    def lock(self, req: Any, node: Any, tree: Any) -> tuple[Any, Any, bool]:
        """The locked node, the mark of its windowed lock, and whether that lock is held."""
        mark = self.mark_of(getattr(req, "lock_receipt", req))
        return node, mark, not getattr(req, "swa_prefix_lock_released", False)

    def mark_of(self, lock: Any) -> Any:
        return _mark_in(lock, self._swa)

    def passed_over(self, node: Any, lock: Any) -> tuple[bool, bool]:
        return False, False

    def mark(self, node: Any) -> Any:
        return node.swa_uuid


class _UnifiedNodes:
    """The nodes and locks of UnifiedRadixCache; in newer releases a node is an id, and a lock has a receipt."""

    def __init__(self, release: Release) -> None:
        components = release.part("ComponentType")
        self._full, self._swa = components.FULL, components.SWA

    def parts(self, node: Any, mapping: Sequence[int]) -> Parts:
        both = node.component_data[self._full], node.component_data[self._swa]
        none = [0] * len(node.key)
        slots, windowed = [none if one.value is None else one.value.tolist() for one in both]
        live = (both[0].value is not None, both[1].value is not None)
        return Parts(slots, windowed, live, (both[0].lock_ref, both[1].lock_ref))

    def frontier(self, req: Any) -> int:
        kv: Any = getattr(req, "kv", None)
        if hasattr(kv, "get_evicted_seqlen"):
            return int(kv.get_evicted_seqlen(self._swa))
        return int(held(req, "swa_evicted_seqlen"))

    def last_node(self, req: Any, tree: Any) -> Any:
        return tree.tree_core.node_by_id(req.last_node) if isinstance(req.last_node, int) else req.last_node

    def lock(self, req: Any, node: Any, tree: Any) -> tuple[Any, Any, bool]:
        lock = getattr(req, "lock", None)
        if lock is None:
            mark = self.mark_of(getattr(req, "lock_receipt", req))
            return node, mark, not getattr(req, "swa_prefix_lock_released", False)
        node = tree.tree_core.node_by_id(lock.node) if isinstance(lock.node, int) else lock.node
        return node, self.mark_of(lock.receipt), not lock.swa_released

    def mark_of(self, lock: Any) -> Any:
        return _mark_in(lock, self._swa)

    def passed_over(self, node: Any, lock: Any) -> tuple[bool, bool]:
        """Does the release of a lock pass over a node, in each pool?

        To 0.5.17 a lock skips nodes without pages, and its release skips these nodes and all other tombstones.
        """
        skipped = getattr(lock, "skip_lock_node_ids", None)
        if skipped is None:
            return False, False
        is_tombstone = node.component_data[self._swa].value is None
        return node.id in skipped.get(self._full, ()), is_tombstone or node.id in skipped.get(self._swa, ())

    def mark(self, node: Any) -> Any:
        return getattr(node.component_data[self._swa], "metadata", {}).get("uuid")


def _mark_in(lock: Any, windowed: Any) -> Any:
    """The mark of a windowed lock, which is in a receipt, or in the request itself (before 0.5.20)."""
    if hasattr(lock, "component_lock_uuids"):
        return lock.component_lock_uuids.get(windowed)
    return getattr(lock, "swa_uuid_for_lock", None)


def limits_of(config: SglangConfig, max_request_len: int) -> Limits:
    """A frontier lags by a page, by the steps between two slides, and by the interval of the eviction."""
    lag = max(config.page_size, config.sliding_window) + config.window_eviction_interval
    return Limits(
        config.page_size,
        config.max_running_requests,
        max_request_len,
        config.chunk_len,
        2 * config.page_size + lag,
        most_launches=2 if config.overlap else 1,
        reuses_in_launch_order=True,
        spare_len=SPARE_TOKENS + 1,
    )


def _listed(values: Any) -> list[Any]:
    return values.tolist() if hasattr(values, "tolist") else list(values)
