"""The configuration of an SGLang scheduler, its draws and its limits; imports nothing of SGLang."""

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Self

from swarden.harness.core.errors import InvalidConfig
from swarden.harness.core.faults import CLIENT_FAULTS
from swarden.harness.core.limits import MAX_NUMBER
from swarden.harness.core.target import Draw, Pool, Shape
from swarden.harness.engines.sglang.capability import SglangCapability, Terms
from swarden.harness.engines.sglang.parts import connector, host_tier, ranks, storage
from swarden.harness.engines.sglang.parts.connector import BACKENDS, Connector
from swarden.harness.engines.sglang.parts.decode_offload import DecodeOffload
from swarden.harness.engines.sglang.parts.drafts import Drafts
from swarden.harness.engines.sglang.parts.grammars import Grammars
from swarden.harness.engines.sglang.parts.host_tier import WRITE_BACK, HostTier
from swarden.harness.engines.sglang.parts.kv_events import KvEvents
from swarden.harness.engines.sglang.parts.link import LINK_FAULTS
from swarden.harness.engines.sglang.parts.pair import DECODE, PREFILL, DecodeTree, Side
from swarden.harness.engines.sglang.parts.ranks import RankGroup
from swarden.harness.engines.sglang.parts.rust_core import RustCore
from swarden.harness.engines.sglang.parts.sessions import Sessions
from swarden.harness.engines.sglang.parts.sidecar import Sidecar
from swarden.harness.engines.sglang.parts.states import BUFFER, LAZY_BUFFER, NO_BUFFER, States
from swarden.harness.engines.sglang.parts.storage import Storage
from swarden.harness.engines.sglang.pools import MAX_PAGES
from swarden.harness.kit import grammars
from swarden.harness.kit.launch import Line, context_of, entry_of_model, table
from swarden.harness.kit.part import merged, off, server_needs, without
from swarden.harness.kit.settings import Drawn, Needs, OneOf, Settings, default_of, drawn, made, replaced, within
from swarden.harness.search.traffic.loads import LOADS_OF_PAIRS
from swarden.invariants.view import ComponentView

FIRST_COME, LONGEST_PREFIX = "fcfs", "lpm"
TREES = DEFAULT_TREE, SWA_TREE, UNIFIED_TREE, NO_TREE = "default", "swa", "unified", "none"
MAX_CONTEXT_LEN = 1 << 20  # as large as that of a server with pages of one token
MAX_POOL_TOKENS = 1 << 24  # of a pool, and of its pool on the host
MOST_NEW_TOKENS = max([num for load in LOADS_OF_PAIRS for num in load.outputs])  # of a request to a pair
MOST_RESERVED_PAGES = 4  # of a decode side for each request
ADAPTERS = "adapter"
SEQUENCES = "sequences"
PRIORITIES, PREEMPTION = "enable-priority-scheduling", "priority-scheduling-preemption-threshold"  # options
INTERVAL = "SGLANG_SWA_EVICTION_INTERVAL"
USUAL_RUNNING = 16  # requests, of a server that bounds them by its free memory
MODELS: Mapping[str, Mapping[str, Any]] = {  # layers beside those of full attention, by the name of a model
    "gemma-?[34]": {"sliding_window": 1023},
    "gpt-oss|mimo-v2": {"sliding_window": 127},
    "qwen3-next|qwen3[.]5|nemotron-h|falcon-h1|granite-4|kimi-linear": {"state_slots": True},
}
OPTIONS = (ADAPTERS, "uncached")  # of a request; an uncached prompt keeps its windowed pages until it ends
OVERBOOKED = {"new_token_ratio": 0.01, "new_token_ratio_floor": 0.01}
SETTINGS_FOR: Mapping[str, Mapping[str, Any]] = {  # by load
    "rivals": {"preemption_threshold": 0, "waiting_order": FIRST_COME},
    "overbooked": OVERBOOKED,
    "returning": {**OVERBOOKED, "max_running_requests": 8},
    "outlasting": {"write_policy": WRITE_BACK},
    "talking": OVERBOOKED,
}
NEEDS_HOST, NEEDS_SESSIONS = ("returning", "outlasting"), ("talking",)
DRAWN_OF_PASSES = ("overlap", "mixed_batches", "window_eviction_interval", "releases_early", "splits_leaves")
WITHOUT_A_WINDOW: Mapping[str, Sequence[Any]] = {"tree": (DEFAULT_TREE, UNIFIED_TREE, NO_TREE)}
SERVER_NEEDS = {  # by setting
    **server_needs(Side),
    "sliding_window": "windowed model",
    **server_needs(States, Sessions, HostTier, Storage, Drafts),
    "mixed_batches": "mixed chunks",
    "preemption_threshold": "priorities",
    **server_needs(KvEvents, DecodeTree, RustCore, RankGroup, Grammars, Sidecar),
}
IN_A_TREE = (HostTier, States, Sessions, RustCore, KvEvents)  # they need a prefix tree
OF_ONE_SIDE = (Side, HostTier, Storage, DecodeTree, DecodeOffload)  # of a pair
OF_PARTS = {**host_tier.FAULTS, **storage.FAULTS, **LINK_FAULTS, **connector.FAULTS, **ranks.FAULTS, **grammars.FAULTS}
FAULTS = {**CLIENT_FAULTS, **OF_PARTS}
OPTIONAL = (*OF_PARTS, *Sessions.ops, *Drafts.ops)  # faults and ops


class SglangConfig(Settings, frozen=True):
    """One scheduler. Lengths are in tokens; `sliding_window` counts the earlier tokens that are read, as in SGLang.

    The SWA pool is at most as large as the full pool: no release accepts a --swa-full-tokens-ratio above 1.  Without a
    `sliding_window` the model has full attention, perhaps with recurrent states, and no pool of `swa_pages`.  `tree` is
    the prefix tree: that of `memory.tree_of`, SWARadixCache ("swa"), UnifiedRadixCache ("unified"), or "none", as with
    --disable-radix-cache.  `preemption_threshold` enables priority scheduling, which needs the waiting order "fcfs".
    `releases_early` and `splits_leaves` are the release's SGLANG_OPT_* switches for windowed locks and leaves.
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
    sidecar: Sidecar = Sidecar()
    host: HostTier = HostTier()
    storage: Storage = Storage()
    side: Side = Side()
    connector: Connector = Connector()
    decode_tree: DecodeTree = DecodeTree()
    offload: DecodeOffload = DecodeOffload()
    sessions: Sessions = Sessions()
    states: States = States()
    drafts: Drafts = Drafts()
    grammars: Grammars = Grammars()
    cores: RustCore = RustCore()
    router: KvEvents = KvEvents()
    group: RankGroup = RankGroup()

    launch_table = table(
        page_size=(Line.number, "page-size", 1),
        max_running_requests=(Line.number, "max-running-requests", USUAL_RUNNING),
        max_prefill_tokens=(Line.length, "max-prefill-tokens", 16384),
        tree=lambda line: NO_TREE if line.has("disable-radix-cache") else DEFAULT_TREE,
        overlap=lambda line: not line.has("disable-overlap-schedule"),
        mixed_batches=(Line.has, "enable-mixed-chunk"),
        waiting_order=(Line.word, "schedule-policy", FIRST_COME),
        new_token_ratio=lambda line: min(1.0, 0.7 * line.number("schedule-conservativeness", 1.0)),
        window_eviction_interval=lambda line: line.length(INTERVAL, 128 if line.is_since("0.5.17") else 1),
        releases_early=(Line.has, "SGLANG_OPT_RELEASE_PREFILL_SWA"),
        splits_leaves=(Line.has, "SGLANG_OPT_SWA_SPLIT_LEAF_ON_INSERT"),
        preemption_threshold=lambda line: line.number(PREEMPTION, 10) if line.has(PRIORITIES) else None,
    )
    servers = ("sglang.launch_server", "sglang serve")
    of_one_side = tuple([name for part in OF_ONE_SIDE for name in default_of(part)])
    main = ("page_size", "full_pages", "swa_pages", "sliding_window", "chunk_len", "overlap")
    needs = (
        Needs("sliding_window", WITHOUT_A_WINDOW, at=None),
        Needs("tree", off(*IN_A_TREE), at=NO_TREE),
        Needs("preemption_threshold", {"waiting_order": (FIRST_COME,)}),
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        tokens = self.page_size * max(self.full_pages, self.swa_pages) * max(1, self.host.host_ratio or 0)
        if tokens > MAX_POOL_TOKENS:
            raise InvalidConfig(f"the largest pool has {tokens:.0f} tokens, want at most {MAX_POOL_TOKENS}")
        if self.chunk_len % self.page_size:
            raise InvalidConfig(f"chunk_len is {self.chunk_len}, want a multiple of page_size {self.page_size}")
        if self.swa_pages < (least := self.least_swa_pages):
            raise InvalidConfig(f"swa_pages is {self.swa_pages}, want at least {least} for this chunk and window")
        if self.has_window and self.swa_pages > self.full_pages:
            raise InvalidConfig(f"swa_pages is {self.swa_pages}, want at most full_pages {self.full_pages}")

    @classmethod
    def of_line(cls, line: Line) -> Self:
        """With pools of some chunks, and a window or states by the name of the model.

        What depends on the GPU is that of 80 GB.
        """
        of_model = entry_of_model(line, MODELS)
        window = of_model.get("sliding_window")
        page, chunk = line.number("page-size", 1), line.number("chunked-prefill-size", 8192)
        line.fit(page, chunk, window or 0)
        values, context = cls.launched(line), context_of(line, "context-length")
        chunk = -(-(line.scaled(chunk) if chunk > 0 else context) // page) * page
        window = None if window is None else line.scaled(window)
        full = max(2, min(line.pool_len, line.number("max-total-tokens", line.pool_len)) // page)
        windowed = max(least_swa_pages(page, window, chunk), int(full * line.number("swa-full-tokens-ratio", 0.8)))
        values |= {"chunk_len": chunk, "sliding_window": window, "max_context_len": context, "full_pages": full}
        values["swa_pages"] = max(2, min(windowed, full))
        return made(cls, values | (States.of_line(line, values) if "state_slots" in of_model else {}))

    @property
    def capabilities(self) -> Sequence[SglangCapability]:
        """The capabilities that are enabled.  Their parts begin a step, and end a drain, in this order."""
        of_memory = (self.sidecar, self.host, self.storage, self.offload, self.side, self.connector, self.decode_tree)
        of_passes = (self.states, self.drafts, self.grammars, self.cores, self.router, self.group)
        return [capability for capability in (self.sessions, *of_memory, *of_passes) if capability.is_on]

    @property
    def terms(self) -> list[Terms]:
        return [capability.terms(self) for capability in self.capabilities]

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
        return self.tree != NO_TREE and (not self.side.is_decode or self.decode_tree.is_on)

    @property
    def has_window(self) -> bool:
        return self.sliding_window is not None

    @property
    def most_launches(self) -> int:
        """The passes that are in flight at once."""
        return 2 if self.overlap else 1

    @property
    def has_priorities(self) -> bool:
        return self.preemption_threshold is not None

    @property
    def faults(self) -> Mapping[str, str]:
        """The faults that can happen to a scheduler of this configuration, each with its effect."""
        return merged([CLIENT_FAULTS, *[capability.faults(self) for capability in self.capabilities]])

    @property
    def components(self) -> tuple[ComponentView, ...]:
        """The components: full attention, a window and recurrent states, as far as the configuration has them."""
        of_kv = [ComponentView(pool.name, pool.window, self.page_size) for pool in self.shape.pools]
        return (*of_kv, *[self.states.view(self.page_size)][: self.states.is_on])

    @property
    def sizes(self) -> list[int]:
        """The units of the pool of each component."""
        return [*[pool.units for pool in self.shape.pools], *[self.states.state_slots or 0][: self.states.is_on]]

    @property
    def shape(self) -> Shape:
        window = self.sliding_window
        of_window = () if window is None else (Pool("swa", self.swa_pages, window + 1),)
        pools = (Pool("full", self.full_pages), *of_window)
        sizes = (self.page_size, pools, self.chunk_len, self.max_running_requests, self.max_context_len)
        used = {name for capability in self.capabilities for name in capability.uses(self)}
        options = [*OPTIONS] if window is None or self.swa_pages >= self.full_pages else [ADAPTERS]
        options += [] if self.side.is_on else [SEQUENCES]
        options += [grammars.GRAMMAR] * 4 if self.grammars.is_on else []
        return Shape(
            *sizes,
            sessions_rewind=False,
            unused=[name for name in OPTIONAL if name not in used],
            options=options,
            **merged(capability.shape(self) for capability in self.capabilities),
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


def random_config(draw: Draw, load: str, has: Callable[[str], bool]) -> SglangConfig:
    """A scheduler with small pools for a load, for a release that `has` these features.

    Some have a pool of recurrent states, some drafts, some the tree core in Rust beside the one in Python.
    """
    config = plain_config(draw, has)
    for kind in (Storage, KvEvents, RustCore, Grammars):
        config = replaced(config, **kind.drawn(draw, config, has))
    if draw.one_of((False, False, False, True)):
        config = replaced(config, sliding_window=None)
    config = replaced(config, **Sidecar.drawn(draw, config, has))
    suited = replaced(config, **SETTINGS_FOR.get(load, {}))
    if load in NEEDS_HOST and has(host_tier.HOST_TIER):
        suited = suited if suited.host.is_on else replaced(suited, host_ratio=draw.one_of(host_tier.ratios(has)))
        has_states = has("state_host_tier") and draw.one_of((False, False, True))
        return with_states(draw, suited, has=has) if has_states else suited
    if load in NEEDS_SESSIONS and has("streaming_sessions"):
        return replaced(suited, streaming_sessions=True)
    config = suited
    if has("state_pool") and draw.one_of((False, False, False, True)):
        return with_states(draw, config, has=has)
    needs_a_tree = any(isinstance(capability, IN_A_TREE) for capability in config.capabilities)
    if not needs_a_tree and draw.one_of((False, False, False, True)):
        config = replaced(config, tree=NO_TREE)
        swa_pages = max(2, config.least_swa_pages) + spare_pages(draw, config.page_size)
        config = replaced(config, swa_pages=min(swa_pages, config.full_pages))
    if draw.one_of((False, False, False, True)):
        overlap = config.overlap and has("overlapped_drafts")
        return replaced(config, mixed_batches=False, overlap=overlap, draft_len=draw.one_of((3, 1, 7)))
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
    left_out = (Sessions, Sidecar) if has("state_host_tier") else (Sessions, Sidecar, HostTier)
    config = without(
        config,
        *left_out,
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
        config = replaced(config, mixed_batches=False, draft_len=length, state_interval=interval)
    return replaced(config, state_slots=config.states.least_slots(config) + spare)


def pair_configs(draw: Draw, has: Callable[[str], bool]) -> tuple[SglangConfig, SglangConfig]:
    """A prefill and a decode configuration: one model and the same switches, but other pools and batches.

    The decode side has pages for a whole request, its estimated output and its reservation, with pages of one token
    also in the windowed pool: a release never admits a larger request, and all that follow wait behind it.  The prefill
    side may have a host tier.
    """
    prefill = replaced(plain_config(draw, lambda _: False), role=PREFILL, preemption_threshold=None)
    if draw.one_of((False, False, False, True)):
        prefill = replaced(prefill, sliding_window=None)
    page = prefill.page_size
    beside = -(-MOST_NEW_TOKENS // page) + MOST_RESERVED_PAGES + 1
    least = least_swa_pages(page, prefill.sliding_window, prefill.chunk_len) + beside
    full = prefill.full_pages + beside * draw.one_of((1, 2, 4))
    decode = replaced(
        prefill,
        role=DECODE,
        full_pages=full,
        swa_pages=full if page == 1 else max(least, draw.one_of((full, least))),
        max_running_requests=draw.one_of((4, 2, 8, 1)),
        reserved_decode_tokens=page * draw.one_of((1, 2, MOST_RESERVED_PAGES)),
        overlap=draw.one_of((True, False)),
    )
    if has("decode_tree" if prefill.sliding_window is None else "decode_tree_with_window"):
        decode = replaced(decode, decode_tree=draw.one_of((False, False, True)))
    if has("decode_offload") and prefill.sliding_window is None:
        decode = replaced(decode, decode_offload=draw.one_of((False, True)))
    if has("decode_host_tier") and decode.decode_tree.is_on and not (decode.offload.is_on or decode.has_window):
        decode = replaced(decode, **HostTier.drawn(draw, decode, has))
        decode = replaced(decode, **Storage.drawn(draw, decode, has))
    if has("connector") and (backend := draw.one_of((None, None, None, None, *BACKENDS))):
        prefill, decode = [replaced(side, connector=backend) for side in (prefill, decode)]
    return replaced(prefill, **HostTier.drawn(draw, prefill, has)), decode


def plain_config(draw: Draw, has: Callable[[str], bool]) -> SglangConfig:
    """A scheduler with small pools, without recurrent states and drafts."""
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
    values |= {**HostTier.drawn(draw, None, has), **Sessions.drawn(draw, None, has)}
    values |= {
        "page_size": page,
        "full_pages": full,
        "swa_pages": min(least + spare, full),
        "sliding_window": window,
        "chunk_len": chunk,
        "preemption_threshold": threshold,
        "new_token_ratio": ratio,
        "new_token_ratio_floor": min(ratio, 0.098),
    }
    return made(SglangConfig, values)
