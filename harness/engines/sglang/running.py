"""A scheduler of a running server: its memory and its configuration, as far as they are known."""

from collections.abc import Callable, Collection, Mapping, Sequence
from types import MethodType
from typing import Any, NamedTuple

from swarden.harness.core.errors import InvalidConfig
from swarden.harness.engines.sglang.boot import SglangRelease
from swarden.harness.engines.sglang.config import (
    DEFAULT_TREE,
    FIRST_COME,
    LONGEST_PREFIX,
    SWA_TREE,
    UNIFIED_TREE,
    SglangConfig,
)
from swarden.harness.engines.sglang.moves import ROWS, free_units, watch
from swarden.harness.engines.sglang.nodes import nodes_of
from swarden.harness.engines.sglang.parts.sessions import OpenSessions
from swarden.harness.engines.sglang.pools import BuiltScheduler, SglangMemory
from swarden.harness.engines.sglang.requests import held
from swarden.harness.kit.calls import Wrap
from swarden.harness.kit.owners import owner_named
from swarden.harness.strict.follow import UnknownScheduler, numbering
from swarden.harness.strict.live import LivePool, Terms
from swarden.invariants.events import REQUEST_KIND, SESSION_KIND, Owner

TREES = {"RadixCache": DEFAULT_TREE, "SWARadixCache": SWA_TREE, "UnifiedRadixCache": UNIFIED_TREE}
SESSIONS = "StreamingSession"  # puts sessions around a tree, in releases whose tree has none
OF_ONE_POOL = ("FullAllocator", "PagedAllocator")
ORDERS = (FIRST_COME, LONGEST_PREFIX)


def built_of(release: SglangRelease, scheduler: Any) -> BuiltScheduler:
    """The scheduler with its memory, all of it free; raises UnknownScheduler if a part of it is not known."""
    memory = SglangMemory(scheduler.req_to_token_pool, scheduler.token_to_kv_pool_allocator, scheduler.tree_cache)
    for reason, is_unknown in REFUSALS.items():
        if is_unknown(release, scheduler):
            raise UnknownScheduler(reason)
    of_one_pool = [release.code(name) for name in OF_ONE_POOL]
    kinds = [release.code("ReqToTokenPool"), release.code("Allocator"), *of_one_pool]
    for part in (memory.rows, memory.allocator):
        if type(part) not in kinds:
            what = "full attention, alone or beside sliding windows, is checked"
            raise UnknownScheduler(f"its {type(part).__name__} is not known; {what}")
    if (name := type(inner_tree(memory.tree)).__name__) not in TREES:
        raise UnknownScheduler(f"its {name} is not known; {', '.join(TREES)} are")
    for pool in memory.allocators:
        if type(pool) not in of_one_pool:
            raise UnknownScheduler(f"its {type(pool).__name__} is not known")
        if pool.available_size() != pool.size:
            raise UnknownScheduler("its pools are in use already")
    return BuiltScheduler(scheduler, memory, numbering())


REFUSALS: dict[str, Callable[[SglangRelease, Any], bool]] = {
    "it uses speculative decoding": lambda release, scheduler: not scheduler.spec_algorithm.is_none(),
    "it is one side of a disaggregated pair": lambda release, scheduler: (
        scheduler.disaggregation_mode != release.code("DisaggregationMode").NULL
    ),
    "it has a hierarchical cache": lambda release, scheduler: bool(scheduler.enable_hierarchical_cache),
    "it decodes by diffusion": lambda release, scheduler: getattr(scheduler, "dllm_config", None) is not None,
    "it has sparse attention with a host pool": lambda release, scheduler: getattr(scheduler, "enable_hisparse", False),
}


def config_of(release: SglangRelease, built: BuiltScheduler) -> SglangConfig:
    """The configuration with which the adapter builds such a scheduler; raises UnknownScheduler if it cannot."""
    scheduler, memory = built[:2]
    rows, page, (full, *of_window) = memory.rows, memory.allocator.page_size, memory.allocators
    tracker = getattr(scheduler, "new_token_ratio_tracker", None)
    ratio, floor, decay = (
        (tracker.init, tracker.min, tracker.decay)
        if tracker is not None
        else (scheduler.init_new_token_ratio, scheduler.min_new_token_ratio, scheduler.new_token_ratio_decay)
    )
    chunk, has_priority = scheduler.chunked_prefill_size, scheduler.enable_priority_scheduling
    try:
        return SglangConfig(
            page_size=page,
            full_pages=full.size // page,
            swa_pages=of_window[0].size // page if of_window else SglangConfig().swa_pages,
            sliding_window=scheduler.sliding_window_size if of_window else None,
            max_running_requests=rows.size,
            max_context_len=scheduler.max_req_len + 1,
            chunk_len=-(-scheduler.max_req_len // page) * page if chunk is None else chunk,
            max_prefill_tokens=scheduler.max_prefill_tokens,
            tree=TREES[type(inner_tree(memory.tree)).__name__],
            overlap=scheduler.enable_overlap,
            mixed_batches=scheduler.is_mixed_chunk,
            waiting_order=scheduler.schedule_policy if scheduler.schedule_policy in ORDERS else FIRST_COME,
            preemption_threshold=scheduler.priority_scheduling_preemption_threshold if has_priority else None,
            window_eviction_interval=_setting(release, "SGLANG_SWA_EVICTION_INTERVAL", 1),
            releases_early=_setting(release, "SGLANG_OPT_SWA_RELEASE_LEAF_LOCK_AFTER_WINDOW", False)
            or _setting(release, "SGLANG_OPT_RELEASE_PREFILL_SWA", False),
            splits_leaves=_setting(release, "SGLANG_OPT_SWA_SPLIT_LEAF_ON_INSERT", False),
            new_token_ratio=ratio,
            new_token_ratio_floor=floor,
            new_token_ratio_decay_steps=max(1, round((ratio - floor) / decay)) if decay else 1,
        )
    except InvalidConfig as error:
        raise UnknownScheduler(f"its configuration cannot be built again: {error}") from error


def differences(built: BuiltScheduler) -> list[str]:
    """The settings of a scheduler that its configuration lacks, which a replay does not have either."""
    order = built.scheduler.schedule_policy
    return [] if order in ORDERS else [f"waiting queues in order {order!r}"]


def _setting(release: SglangRelease, name: str, default: Any) -> Any:
    """A setting that the release reads from the environment; `default` if it has none of this name."""
    setting = getattr(release.code("envs"), name, None)
    return default if setting is None else setting.get()


class LiveRecord(NamedTuple):
    """The row of one request or session; in pages, how much KV it has, how much it shares, and shares or has freed."""

    row: int
    pages: int
    protected: int
    frontier: int

    def private(self, pool: str) -> int:
        """The private pages in a pool; a row is one of a pool of its own."""
        return 1 if pool == ROWS else self.pages - (self.protected if pool == "full" else self.frontier)


class FreePages(NamedTuple):
    """The free list of a sub-allocator, in pages."""

    allocator: Any
    page: int

    @property
    def num_free(self) -> int:
        return int(self.allocator.available_size()) // self.page

    @property
    def free_units(self) -> Sequence[int]:
        return free_units(self.allocator)


class LiveMemory:
    """The terms of the pools, by the counters of the allocators and of the tree and the lengths of the records.

    The tree's counters are not checked. The cost is a pass over the running requests.
    """

    def __init__(self, release: SglangRelease, config: SglangConfig, built: BuiltScheduler) -> None:
        self.config, self.built, self.page = config, built, built.memory.allocator.page_size
        self.int64 = release.torch.int64
        self.nodes = nodes_of(release, config.components, inner_tree(built.memory.tree))
        self._sessions = sessions_of(built.scheduler, built.memory.tree)
        self.latest: Mapping[Owner, LiveRecord] | None = None  # records that the next terms are made from
        names = [component.pool for component in config.components]
        self._pools = [*zip(names, config.sizes, built.memory.allocators, strict=True)]

    def terms(self) -> Sequence[Terms]:
        (rows, _, tree), terms = self.built.memory, list[Terms]()
        records, self.latest = self.latest or self.records(), None
        for pool, units, allocator in self._pools:
            counters = self.nodes.counters[pool]
            evictable, protected = counters.evictable_units(tree, self.page), counters.protected_units(tree, self.page)
            own = sum([record.private(pool) for record in records.values()])
            terms.append(Terms(pool, units, FreePages(allocator, self.page).num_free, evictable, protected, own))
        return *terms, Terms("rows", rows.size, len(rows.free_slots), uncached=len(records))

    def records(self) -> dict[Owner, LiveRecord]:
        """The KV of the requests that the scheduler reaches, and of the sessions that keep it while no turn runs."""
        scheduler = self.built.scheduler
        reqs = {id(req): req for req in (*scheduler.running_batch.reqs, *_of_last_pass(scheduler))}
        with_row = [req for req in reqs.values() if held(req, "req_pool_idx") is not None]
        records = {owner_named(REQUEST_KIND, req.swarden.id): self._record(req) for req in with_row}
        if self._sessions is not None:
            rows = {record.row for record in records.values()}
            kept = {owner_named(SESSION_KIND, number): self._record(slot) for number, slot in self._sessions.slots}
            records |= {owner: record for owner, record in kept.items() if record.row not in rows}
        return records

    def uncached(self, pool: str) -> dict[Owner, int]:
        """The private pages, or the row, of each request and session."""
        return {owner: record.private(pool) for owner, record in self.records().items()}

    def pools(self) -> Sequence[LivePool]:
        """The pools whose moves are watched."""
        return [LivePool(pool, "page", units, FreePages(of_pool, self.page)) for pool, units, of_pool in self._pools]

    def watch(self, notice: Callable[[NamedTuple], None], wrap: Wrap) -> None:
        """Report the moves of pages from now on."""
        for pool, _, allocator in self._pools:
            watch(pool, allocator, notice, wrap)
        use_watched_methods(self.built.memory.tree, self.built.memory.allocators)

    def _record(self, kv: Any) -> LiveRecord:
        page, protected = self.page, held(kv, "cache_protected_len")
        shared = max(protected, self.nodes.frontier(kv) if self.config.has_window else 0)
        pages = -(-held(kv, "kv_allocated_len") // page)
        return LiveRecord(held(kv, "req_pool_idx"), pages, protected // page, shared // page)


def inner_tree(tree: Any) -> Any:
    """The tree itself, without the sessions around it."""
    return tree.inner if type(tree).__name__ == SESSIONS else tree


def sessions_of(scheduler: Any, tree: Any) -> OpenSessions | None:
    """The streaming sessions of a scheduler; None if it serves none."""
    if not scheduler.server_args.enable_streaming_session:
        return None
    kept = tree if type(tree).__name__ == SESSIONS else tree.session
    return OpenSessions(scheduler.session_controller, kept, numbering())


def reachable(scheduler: Any) -> set[int]:
    """The identities of the requests in the queues of the scheduler."""
    return {id(req) for req in (*scheduler.running_batch.reqs, *_of_last_pass(scheduler), *scheduler.waiting_queue)}


def _of_last_pass(scheduler: Any) -> list[Any]:
    last, chunked = scheduler.last_batch, scheduler.chunked_req
    return [*(() if last is None else last.reqs), *(() if chunked is None else (chunked,))]


def use_watched_methods(tree: Any, pools: Collection[Any]) -> None:
    """Let the components of a tree call the watched methods of the allocators; some have kept the original ones."""
    components = getattr(inner_tree(tree), "components", {})
    for component in components.values() if isinstance(components, dict) else components:
        for name, value in list(vars(component).items()):
            if isinstance(value, MethodType) and value.__self__ in pools:
                setattr(component, name, vars(value.__self__).get(value.__name__, value))
