"""The configuration of an SGLang scheduler, its draws and its limits; imports nothing of SGLang."""

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

import msgspec

from swarden.harness.core.errors import InvalidConfig
from swarden.harness.core.faults import CLIENT_FAULTS
from swarden.harness.core.limits import MAX_NUMBER
from swarden.harness.core.ops import Accept, OpenSession, name_of
from swarden.harness.core.target import Draw, Pool, Shape
from swarden.harness.core.validation import shortened
from swarden.harness.engines.sglang.states import STATE_POOL, STATE_WINDOW
from swarden.harness.kit.settings import Drawn, IfReleaseHas, Needs, OneOf, PartOf, Settings, drawn, within
from swarden.harness.search.traffic.loads import LOADS_OF_PAIRS
from swarden.invariants.view import ComponentView

FIRST_COME, LONGEST_PREFIX = "fcfs", "lpm"
WRITE_POLICIES = WRITE_THROUGH, WRITE_SELECTED, WRITE_BACK = "write_through", "write_through_selective", "write_back"
DRAWN_POLICIES = (WRITE_THROUGH, WRITE_SELECTED, WRITE_THROUGH, WRITE_BACK)
TREES = DEFAULT_TREE, SWA_TREE, UNIFIED_TREE, NO_TREE = "default", "swa", "unified", "none"
MAX_PAGES, MAX_CONTEXT_LEN = 1 << 22, 1 << 20  # as large as those of a server with pages of one token
MAX_POOL_TOKENS = 1 << 24  # of a pool, and of its pool on the host
STATES_PER_RUNNING = 3  # MAMBA_CACHE_SIZE_MAX_RUNNING_REQUESTS_RATIO of the releases, without buffers
STATE_STRATEGIES = NO_BUFFER, BUFFER, LAZY_BUFFER = "no_buffer", "extra_buffer", "extra_buffer_lazy"
BOTH, PREFILL, DECODE = "null", "prefill", "decode"  # the values of --disaggregation-mode
HOST_FAILS, HOST_SLOW = "host.fails", "host.slow"
HOST_FAULTS = {
    HOST_FAILS: "a host pool refuses an allocation, as if the pool were full",
    HOST_SLOW: "a copy that nothing waits for stays in flight until the release asks again",
}
STORAGE_POLICIES = ("timeout", "wait_complete", "best_effort")  # the first is the default of servers
STORAGE_FAILS, STORAGE_SLOW, STORAGE_PARTIAL = "storage.fails", "storage.slow", "storage.partial"
STORAGE_FAULTS = {
    STORAGE_FAILS: "an operation of the storage behind the host fails: it finds, reads or writes nothing",
    STORAGE_SLOW: "an operation of the storage lasts until the next step, and the thread of the release waits in it",
    STORAGE_PARTIAL: "an operation of the storage finds, reads or writes the first half of its pages",
}
LINK_FAILS, LINK_DROP, LINK_DELAY, LINK_LATE = "link.fails", "link.drop", "link.delay", "link.late"
LINK_FAULTS = {
    LINK_FAILS: "a transfer fails, and both sides learn it",
    LINK_DROP: "the decode side never learns that a transfer is complete, so that it times out",
    LINK_DELAY: "a transfer completes some polls later",
    LINK_LATE: "the pages of a chunk arrive some steps later, also if the transfer is aborted before",
}
MOST_NEW_TOKENS = max([num for load in LOADS_OF_PAIRS for num in load.outputs])  # of a request to a pair
MOST_RESERVED_PAGES = 4  # of a decode side for each request
ADAPTERS = "adapter"
SEQUENCES = "sequences"
OPTIONS = (ADAPTERS, "uncached")  # of a request; an uncached prompt keeps its windowed pages until it ends
FAULTS = {**CLIENT_FAULTS, **HOST_FAULTS, **STORAGE_FAULTS, **LINK_FAULTS}
OVERBOOKED = {"new_token_ratio": 0.01, "new_token_ratio_floor": 0.01}
SETTINGS_FOR: Mapping[str, Mapping[str, Any]] = {  # by load
    "rivals": {"preemption_threshold": 0, "waiting_order": FIRST_COME},
    "overbooked": OVERBOOKED,
    "returning": {**OVERBOOKED, "max_running_requests": 8},
    "outlasting": {"write_policy": WRITE_BACK},
    "talking": OVERBOOKED,
}
NEEDS_HOST, NEEDS_SESSIONS = ("returning", "outlasting"), ("talking",)
NEEDED_BY: Mapping[str, Mapping[str, Any]] = {  # the values of other settings that a setting needs
    "state_slots": {"role": BOTH, "streaming_sessions": False},
    "draft_len": {"role": BOTH, "mixed_batches": False},
}
WITHOUT_BUFFERS: Mapping[str, Any] = {"overlap": False, "page_size": 1}  # what the strategy no_buffer needs
DRAWN_OF_PASSES = ("overlap", "mixed_batches", "window_eviction_interval", "releases_early", "splits_leaves")
WITHOUT_A_WINDOW: Mapping[str, Sequence[Any]] = {"tree": (DEFAULT_TREE, UNIFIED_TREE, NO_TREE)}
WITHOUT_A_TREE: Mapping[str, Sequence[Any]] = {
    **dict.fromkeys(("host_ratio", "state_slots"), (None,)),
    **dict.fromkeys(("streaming_sessions", "rust_core", "kv_events"), (False,)),
}


Timeout = Annotated[float, msgspec.Meta(gt=0, le=MAX_NUMBER)]


class SglangConfig(Settings, frozen=True):
    """One scheduler. Lengths are in tokens; `sliding_window` counts the earlier tokens that are read, as in SGLang.

    The SWA pool is at most as large as the full pool: no release accepts a --swa-full-tokens-ratio above 1.
    Without a `sliding_window` the model has full attention, perhaps with recurrent states, and no pool of `swa_pages`.

    `tree` is the prefix tree: that of `memory.tree_of`, SWARadixCache ("swa"), UnifiedRadixCache ("unified"), or
    "none", as with --disable-radix-cache.  `preemption_threshold` enables priority scheduling, which needs the waiting
    order "fcfs".
    `releases_early` and `splits_leaves` are the release's SGLANG_OPT_* switches for windowed locks and leaves.
    `host_ratio` enables the hierarchical cache, and is the size of each host pool in units of its device pool.  A load
    from the host with fewer than `load_back_threshold` tokens of full attention is not started.  `role` is the
    disaggregation mode: a prefill side, a decode side, or both in one.  A decode side reserves
    `reserved_decode_tokens` per request.  It has a prefix tree only with `decode_tree`, which is
    --disaggregation-decode-enable-radix-cache; then the pages that it has cached are not transferred.
    With `decode_offload`, which is --disaggregation-decode-enable-offload-kvcache, it writes the KV of its outputs to a
    storage, through a host pool as large as its own.
    `storage_policy` enables a storage behind the host (L3), and is --hicache-storage-prefetch-policy; fewer than
    `prefetch_threshold` tokens are not fetched from it.
    `streaming_sessions` is the switch of that name; an idle session is closed after `session_timeout_s`.
    `state_slots` enables a pool of so many recurrent states.  `state_strategy` is --mamba-radix-cache-strategy: with
    buffers, each request keeps the states of its prefixes at multiples of `state_interval` (--mamba-track-interval)
    while it decodes, and in a prefill at multiples of `state_chunk_len`, the chunk of the model's kernels.
    `draft_len` enables speculative decoding (NGRAM), with a chain of as many drafts in each decode.
    `rust_core` lets the tree core in Rust answer beside the one in Python; a different answer is an error.
    `kv_events` publishes KV events, in the format that tells namespaces apart.
    """

    page_size: Annotated[int, within(1, 256)] = 1
    full_pages: Annotated[int, within(2, MAX_PAGES)] = 64
    swa_pages: Annotated[int, within(2, MAX_PAGES)] = 40
    sliding_window: Annotated[int, within(1, 65536)] | None = 4
    max_running_requests: Annotated[int, within(1, 1024), Drawn((4, 2, 3, 8))] = 4
    max_context_len: Annotated[int, within(8, MAX_CONTEXT_LEN)] = 384
    chunk_len: Annotated[int, within(1, 65536)] = 8
    max_prefill_tokens: Annotated[int, within(1, MAX_NUMBER)] = 16384
    tree: Annotated[str, OneOf(TREES)] = DEFAULT_TREE
    overlap: Annotated[bool, Drawn((True, False))] = True
    mixed_batches: Annotated[bool, Drawn((False, False, True))] = False
    waiting_order: Annotated[str, Drawn((FIRST_COME, LONGEST_PREFIX)), OneOf((FIRST_COME, LONGEST_PREFIX))] = FIRST_COME
    preemption_threshold: Annotated[int, within(0, MAX_NUMBER)] | None = None
    window_eviction_interval: Annotated[int, within(1, MAX_NUMBER), Drawn((1, 4, 1, 128))] = 1
    releases_early: Annotated[bool, Drawn((False, False, True))] = False
    splits_leaves: Annotated[bool, Drawn((False, False, True))] = False
    new_token_ratio: Annotated[float, within(0, 1)] = 0.7
    new_token_ratio_floor: Annotated[float, within(0, 1)] = 0.098
    new_token_ratio_decay_steps: Annotated[int, within(1, MAX_NUMBER)] = 600
    host_ratio: Annotated[Annotated[float, msgspec.Meta(gt=0, le=16)] | None, IfReleaseHas("host_tier")] = None
    write_policy: Annotated[str, OneOf(WRITE_POLICIES), Drawn(DRAWN_POLICIES)] = WRITE_THROUGH
    load_back_threshold: Annotated[int, within(1, MAX_NUMBER), Drawn((10, 1))] = 10
    storage_policy: Annotated[
        str | None,
        Drawn(STORAGE_POLICIES),
        OneOf((None, *STORAGE_POLICIES)),
        IfReleaseHas("storage"),
        PartOf("host_ratio"),
    ] = None
    prefetch_threshold: Annotated[int, within(1, MAX_NUMBER), Drawn((1, 8)), PartOf("host_ratio")] = 1
    role: Annotated[str, OneOf((BOTH, PREFILL, DECODE))] = BOTH
    reserved_decode_tokens: Annotated[int, within(0, MAX_NUMBER)] = 4
    decode_tree: Annotated[bool, IfReleaseHas("decode_tree")] = False
    decode_offload: Annotated[bool, IfReleaseHas("decode_offload")] = False
    streaming_sessions: Annotated[bool, IfReleaseHas("streaming_sessions")] = False
    session_timeout_s: Annotated[Timeout | None, Drawn((None, None, 5.0))] = None
    state_slots: Annotated[Annotated[int, within(3, MAX_PAGES)] | None, IfReleaseHas("state_pool")] = None
    state_strategy: Annotated[str, OneOf(STATE_STRATEGIES), IfReleaseHas("tracked_states"), PartOf("state_slots")] = (
        NO_BUFFER
    )
    state_interval: Annotated[int, within(1, 65536), PartOf("state_slots")] = 8
    state_chunk_len: Annotated[int, within(2, 256), PartOf("state_slots")] = 4
    draft_len: Annotated[int, within(1, 16)] | None = None
    rust_core: Annotated[bool, IfReleaseHas("rust_core")] = False
    kv_events: Annotated[bool, Drawn((False, False, False, True)), IfReleaseHas("kv_event_namespaces")] = False

    main = ("page_size", "full_pages", "swa_pages", "sliding_window", "chunk_len", "overlap")
    needs = (
        *[Needs(setting, {name: (value,) for name, value in needed.items()}) for setting, needed in NEEDED_BY.items()],
        Needs("sliding_window", WITHOUT_A_WINDOW, at=None),
        Needs("tree", WITHOUT_A_TREE, at=NO_TREE),
        Needs("host_ratio", {"role": (BOTH,), "tree": (DEFAULT_TREE, UNIFIED_TREE)}),
        Needs("streaming_sessions", {"role": (BOTH,)}),
        Needs("decode_tree", {"tree": (DEFAULT_TREE, UNIFIED_TREE)}),
        Needs("decode_offload", {"role": (DECODE,), "sliding_window": (None,)}),
        Needs("kv_events", {"role": (BOTH,), "rust_core": (False,)}),
        Needs("state_slots", {"tree": (DEFAULT_TREE, UNIFIED_TREE)}),
        Needs("preemption_threshold", {"waiting_order": (FIRST_COME,)}),
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        tokens = self.page_size * max(self.full_pages, self.swa_pages) * max(1, self.host_ratio or 0)
        if tokens > MAX_POOL_TOKENS:
            raise InvalidConfig(f"the largest pool has {tokens:.0f} tokens, want at most {MAX_POOL_TOKENS}")
        if self.chunk_len % self.page_size:
            raise InvalidConfig(f"chunk_len is {self.chunk_len}, want a multiple of page_size {self.page_size}")
        if self.swa_pages < (least := self.least_swa_pages):
            raise InvalidConfig(f"swa_pages is {self.swa_pages}, want at least {least} for this chunk and window")
        if self.sliding_window is not None and self.swa_pages > self.full_pages:
            raise InvalidConfig(f"swa_pages is {self.swa_pages}, want at most full_pages {self.full_pages}")
        if self.host_ratio is None:
            self._check({"storage_policy": None}, "without host_ratio")
        self._check_states()

    def _check_states(self) -> None:
        """The checks of a server for recurrent states."""
        strategy = self.state_strategy
        if self.state_slots is None:
            self._check({"state_strategy": NO_BUFFER}, "without state_slots")
            return
        least = (STATES_PER_RUNNING + self.states_tracked) * self.max_running_requests
        if self.state_slots < least:
            raise InvalidConfig(f"state_slots is {self.state_slots}, want at least {least} for these requests")
        if strategy == NO_BUFFER:
            self._check(WITHOUT_BUFFERS, f"with state_strategy {strategy}")
        elif strategy == LAZY_BUFFER:
            self._check({"overlap": True}, f"with state_strategy {strategy}")
        if max(self.state_chunk_len, self.page_size) % min(self.state_chunk_len, self.page_size):
            raise InvalidConfig(f"state_chunk_len is {self.state_chunk_len}, want a multiple or divisor of page_size")
        if self.state_interval % self.page_size or self.state_interval < self.state_chunk_len:
            raise InvalidConfig(
                f"state_interval is {self.state_interval}, want a multiple of page_size {self.page_size} "
                f"that is at least state_chunk_len {self.state_chunk_len}"
            )
        if strategy != NO_BUFFER and self.draft_len is not None and self.state_interval <= self.draft_len:
            raise InvalidConfig(f"state_interval is {self.state_interval}, want more than draft_len {self.draft_len}")

    def _check(self, wanted: Mapping[str, Any], beside: str) -> None:
        for name, value in wanted.items():
            if getattr(self, name) != value:
                raise InvalidConfig(f"{name} is {shortened(getattr(self, name))} {beside}, want {shortened(value)}")

    @property
    def least_swa_pages(self) -> int:
        """The pages of the smallest SWA pool; without a tree it may hold one chunk less.

        A server has such a pool if --swa-full-tokens-ratio sizes it, which is checked against window and page only
        (0.5.23, pool_configurator.py:881).  Sized by --max-running-requests it holds two chunks with overlap (:963).
        """
        least = least_swa_pages(self.page_size, self.sliding_window, self.chunk_len)
        return max(0, least - self.chunk_len // self.page_size) if self.tree == NO_TREE else least

    @property
    def caches_prefixes(self) -> bool:
        """Whether there is a prefix tree."""
        return self.tree != NO_TREE and (self.role != DECODE or self.decode_tree)

    @property
    def has_storage(self) -> bool:
        """Whether a storage is behind the host memory, or behind the answers of a decode side."""
        return self.storage_policy is not None or self.decode_offload

    @property
    def has_priorities(self) -> bool:
        return self.preemption_threshold is not None

    @property
    def faults(self) -> Mapping[str, str]:
        """The faults that can happen to a scheduler of this configuration, each with its effect."""
        of_host = HOST_FAULTS if self.host_ratio is not None or self.decode_offload else {}
        of_storage = STORAGE_FAULTS if self.has_storage else {}
        of_link = LINK_FAULTS if self.role != BOTH else {}
        return {**CLIENT_FAULTS, **of_host, **of_storage, **of_link}

    @property
    def components(self) -> tuple[ComponentView, ...]:
        """The components: full attention, a window and recurrent states, as far as the configuration has them."""
        of_kv = tuple([ComponentView(pool.name, pool.window, self.page_size) for pool in self.shape.pools])
        states = ComponentView(STATE_POOL, STATE_WINDOW, self.page_size, has_states=True)
        return of_kv if self.state_slots is None else (*of_kv, states)

    @property
    def sizes(self) -> list[int]:
        """The units of the pool of each component."""
        return [*[pool.units for pool in self.shape.pools], *([] if self.state_slots is None else [self.state_slots])]

    @property
    def states_tracked(self) -> int:
        """The states that a request keeps beside its own: get_mamba_tracking_slots of the releases."""
        if self.state_strategy == NO_BUFFER:
            return 0
        return 2 if self.state_strategy == BUFFER and self.overlap else 1

    @property
    def shape(self) -> Shape:
        window = self.sliding_window
        of_window = () if window is None else (Pool("swa", self.swa_pages, window + 1),)
        pools = (Pool("full", self.full_pages), *of_window)
        sizes = (self.page_size, pools, self.chunk_len, self.max_running_requests, self.max_context_len)
        has_host, moves_kv = self.host_ratio is not None, self.role == PREFILL
        unused = [
            *(() if has_host else [HOST_SLOW] if self.decode_offload else HOST_FAULTS),
            *(() if self.has_storage else STORAGE_FAULTS),
            *(() if moves_kv else LINK_FAULTS),
            *(() if self.streaming_sessions else (name_of(OpenSession),)),
            *(() if self.draft_len is not None else (name_of(Accept),)),
        ]
        uses = {WRITE_SELECTED: 2}.get(self.write_policy, 1) if has_host else 0
        slow = HOST_SLOW if has_host else ""
        options = [*(OPTIONS if self.sliding_window is None or self.swa_pages >= self.full_pages else (ADAPTERS,))]
        options += [SEQUENCES] if self.role == BOTH else []
        return Shape(
            *sizes, sessions_rewind=False, unused=unused, uses_before_backup=uses, slow_copy=slow, options=options
        )


def least_swa_pages(page_size: int, window: int | None, chunk_len: int) -> int:
    """The pages of the smallest SWA pool with which every request can run; 0 without a window.

    A request has a chunk and a window, and `PrefillAdder.add_one_req` wants more than max(chunk, window) + page free.
    """
    if window is None:
        return 0
    return -(-(max(chunk_len, window) + chunk_len + window + 2 * page_size) // page_size)


def spare_pages(draw: Draw, page_size: int) -> int:
    """The pages of an SWA pool beside those of the smallest one."""
    return draw.one_of((0, 1, 2, 6, 12, 40)) // max(1, page_size // 4)


def random_config(draw: Draw, load: str, *, host_ratios: Sequence[float], has: Callable[[str], bool]) -> SglangConfig:
    """A scheduler with small pools for a load, for a release that `has` these features.

    Some have a pool of recurrent states, some drafts, some the tree core in Rust beside the one in Python.
    """
    config = plain_config(draw, host_ratios=host_ratios, has_sessions=has("streaming_sessions"))
    if config.host_ratio is not None and has("storage") and draw.one_of((False, False, True)):
        config = msgspec.structs.replace(config, **drawn(draw, SglangConfig, "storage_policy", "prefetch_threshold"))
    if has("kv_event_namespaces"):
        config = msgspec.structs.replace(config, **drawn(draw, SglangConfig, "kv_events"))
    if has("rust_core") and not config.kv_events and draw.one_of((False, False, True)):
        config = msgspec.structs.replace(config, rust_core=True)
    if draw.one_of((False, False, False, True)):
        config = msgspec.structs.replace(config, sliding_window=None)
    suited = msgspec.structs.replace(config, **SETTINGS_FOR.get(load, {}))
    if load in NEEDS_HOST and host_ratios:
        return msgspec.structs.replace(suited, host_ratio=config.host_ratio or draw.one_of(host_ratios))
    if load in NEEDS_SESSIONS and has("streaming_sessions"):
        return msgspec.structs.replace(suited, streaming_sessions=True)
    config = suited
    if has("state_pool") and draw.one_of((False, False, False, True)):
        return with_states(draw, config, has=has)
    needs_no_tree = all(getattr(config, name) in values for name, values in WITHOUT_A_TREE.items())
    if needs_no_tree and draw.one_of((False, False, False, True)):
        config = msgspec.structs.replace(config, tree=NO_TREE)
        swa_pages = max(2, config.least_swa_pages) + spare_pages(draw, config.page_size)
        config = msgspec.structs.replace(config, swa_pages=min(swa_pages, config.full_pages))
    if draw.one_of((False, False, False, True)):
        overlap = config.overlap and has("overlapped_drafts")
        return msgspec.structs.replace(
            config, **NEEDED_BY["draft_len"], overlap=overlap, draft_len=draw.one_of((3, 1, 7))
        )
    return config


def with_states(draw: Draw, config: SglangConfig, *, has: Callable[[str], bool]) -> SglangConfig:
    """A configuration with recurrent states; half of them have no window."""
    spare, window = draw.one_of((0, 1, 4, 16)), draw.one_of((config.sliding_window, None))
    strategy = draw.one_of((NO_BUFFER, BUFFER, BUFFER, LAZY_BUFFER)) if has("tracked_states") else NO_BUFFER
    has_buffers = strategy != NO_BUFFER
    page, overlap = (config.page_size, config.overlap or strategy == LAZY_BUFFER) if has_buffers else (1, False)
    chunk = draw.one_of((4, 2, 8, 16)) if has_buffers else 4
    interval = max(chunk, page) * (draw.one_of((1, 2, 3)) if has_buffers else 1)
    least = least_swa_pages(page, window, config.chunk_len)
    full = max(40 // page, config.full_pages, least)
    config = msgspec.structs.replace(
        config,
        **NEEDED_BY["state_slots"],
        host_ratio=config.host_ratio if has("state_host_tier") else None,
        page_size=page,
        overlap=overlap,
        sliding_window=window,
        full_pages=full,
        swa_pages=min(max(least, 2) + spare, full),
        state_slots=MAX_PAGES,
        state_strategy=strategy,
        state_chunk_len=chunk,
        state_interval=interval,
    )
    if has("states_after_drafts") and draw.one_of((False, False, True)):
        length, unit = draw.one_of((3, 1, 7)), max(chunk, page)
        of_two_passes = -(-2 * (length + 1) // unit) * unit  # shorter ones meet two-passes-cross-the-track-interval
        interval = max(interval, of_two_passes)
        config = msgspec.structs.replace(config, **NEEDED_BY["draft_len"], draft_len=length, state_interval=interval)
    slots = (STATES_PER_RUNNING + config.states_tracked) * config.max_running_requests + spare
    return msgspec.structs.replace(config, state_slots=slots)


def pair_configs(draw: Draw, has: Callable[[str], bool]) -> tuple[SglangConfig, SglangConfig]:
    """A prefill and a decode configuration: one model and the same switches, but other pools and batches.

    The decode side has pages for a whole request, its estimated output and its reservation, with pages of one token
    also in the windowed pool: a release never admits a larger request, and all that follow wait behind it.
    """
    prefill = msgspec.structs.replace(plain_config(draw), role=PREFILL, preemption_threshold=None)
    if draw.one_of((False, False, False, True)):
        prefill = msgspec.structs.replace(prefill, sliding_window=None)
    page = prefill.page_size
    beside = -(-MOST_NEW_TOKENS // page) + MOST_RESERVED_PAGES + 1
    least = least_swa_pages(page, prefill.sliding_window, prefill.chunk_len) + beside
    full = prefill.full_pages + beside * draw.one_of((1, 2, 4))
    decode = msgspec.structs.replace(
        prefill,
        role=DECODE,
        full_pages=full,
        swa_pages=full if page == 1 else max(least, draw.one_of((full, least))),
        max_running_requests=draw.one_of((4, 2, 8, 1)),
        reserved_decode_tokens=page * draw.one_of((1, 2, MOST_RESERVED_PAGES)),
        overlap=draw.one_of((True, False)),
    )
    if has("decode_tree" if prefill.sliding_window is None else "decode_tree_with_window"):
        decode = msgspec.structs.replace(decode, decode_tree=draw.one_of((False, False, True)))
    if has("decode_offload") and prefill.sliding_window is None:
        decode = msgspec.structs.replace(decode, decode_offload=draw.one_of((False, True)))
    return prefill, decode


def plain_config(draw: Draw, *, host_ratios: Sequence[float] = (), has_sessions: bool = False) -> SglangConfig:
    """A scheduler with small pools, without recurrent states and drafts.

    Half of them have a hierarchical cache, if there is any ratio for it, and a third has sessions, if there are any.
    """
    page = draw.one_of((1, 4, 1, 2, 16))
    window = draw.one_of((4, 2, 8, 3, 5, 16))
    chunk = page * max(1, draw.one_of((8, 4, 16)) // page)
    spare = spare_pages(draw, page)
    ratio = draw.one_of((0.7, 0.1, 0.01, 1.0))
    threshold = draw.one_of((None, None, 0, 1))
    least = least_swa_pages(page, window, chunk)
    full = max(8, least, draw.one_of((64, 48, 96, 40, 128)) // page) + draw.integer(0, 3)
    values = drawn(draw, SglangConfig, "max_running_requests", *(["waiting_order"] if threshold is None else []))
    values |= drawn(draw, SglangConfig, *DRAWN_OF_PASSES)
    host_ratio = draw.one_of((None, draw.one_of(host_ratios))) if host_ratios else None
    values |= drawn(draw, SglangConfig, "write_policy", "load_back_threshold")
    has_sessions = has_sessions and draw.one_of((False, False, True))
    values |= drawn(draw, SglangConfig, "session_timeout_s")
    return SglangConfig(
        page_size=page,
        full_pages=full,
        swa_pages=min(least + spare, full),
        sliding_window=window,
        chunk_len=chunk,
        preemption_threshold=threshold,
        new_token_ratio=ratio,
        new_token_ratio_floor=min(ratio, 0.098),
        host_ratio=host_ratio,
        streaming_sessions=has_sessions,
        **values,
    )
