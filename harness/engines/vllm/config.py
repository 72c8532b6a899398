"""The configuration of a vLLM engine core, its draws and its limits; imports nothing of vLLM."""

from collections.abc import Sequence
from typing import Annotated, ClassVar

import msgspec

from swarden.harness.core.errors import InvalidConfig
from swarden.harness.core.ops import SESSION_OPS, Accept, name_of
from swarden.harness.core.target import Pool, Shape
from swarden.harness.engines.vllm.layers import (
    MAX_BLOCKS,
    MAX_CONTEXT_LEN,
    MAX_WINDOWS,
    BlockSize,
    LayerGroup,
    Window,
    Windows,
)
from swarden.harness.kit.settings import Drawn, IfReleaseHas, Needs, OneOf, PartOf, Settings, within

LRU, ARC = "lru", "arc"
CHUNKS, EAGER, LAZY = "chunks", "eager", "lazy"  # offloaders
FIRST_COME, PRIORITY = "fcfs", "priority"
NGRAM, EAGLE = "ngram", "eagle"
MAX_SLOTS = 1 << 24  # of the pool, and of the CPU memory of the offloading connector
MAX_CHUNKS_ON_DISK = 1 << 12  # of CPU memory, if there is a second tier: each is bytes, as the tier reads them
STATE_WINDOW = 2  # a token reads the state that the token before it left
LEASE_S = 30  # kv_lease_duration: for so long a prefill side keeps blocks that are not read; the releases' default
ACCEPT, SEQUENCES = name_of(Accept), "sequences"
BOTH, PREFILL, DECODE = "both", "prefill", "decode"  # roles
LOAD_FAILS, LOAD_LATE, STORE_LATE = "load.fails", "load.late", "store.late"
LINK_FAILS, LINK_DROP, LINK_DELAY = "link.fails", "link.drop", "link.delay"
LOAD_FAULTS = {
    LOAD_FAILS: "a load of external KV fails, and writes nothing: the request computes the tokens itself",
    LOAD_LATE: "a load of external KV takes four more passes",
    STORE_LATE: "a copy to CPU memory takes four more passes",
}
LINK_FAULTS = {
    LINK_FAILS: "a transfer of KV to the decode side fails, and writes nothing",
    LINK_DROP: "the prefill side never learns that its KV was read, and keeps it until the lease ends",
    LINK_DELAY: "a transfer of KV to the decode side takes four more steps",
}
DISK_FAILS, DISK_FULL, DISK_LATE = "disk.fails", "disk.full", "disk.late"
DISK_FAULTS = {
    DISK_FAILS: "a file of the second tier is cut short, and the read of it fails",
    DISK_FULL: "a write of the second tier fails",
    DISK_LATE: "a read or a write of the second tier takes four more steps",
}
CONNECTOR_FAULTS = LOAD_FAULTS | LINK_FAULTS | DISK_FAULTS

NONE, ALL, ALIGN = "none", "all", "align"  # mamba_cache_mode


class VllmConfig(Settings, frozen=True):
    """One engine core. Lengths are in tokens; a window counts the token itself, as in vLLM.

    `num_blocks` are the blocks of the pool without the null block.  A group of layers has full attention; each
    of `windows` is a further group (None: of full attention, too), with blocks of `window_block_sizes` tokens (empty:
    block_size).  With `windows_first` these groups come first, or so many of them, as in models whose first layer has
    a window: a release makes the groups in the order in which such layers first appear.  `state_groups` are groups of
    Mamba layers, with the mamba_cache_mode of the prefix cache: "align", or "all" with `all_states`; without a prefix
    cache it is "none".  `chunk_len` is max_num_batched_tokens: the tokens of one pass.  `policy` is the
    order of the waiting requests; with "priority", a request of lower priority is preempted first.  `asynchronous`
    is the AsyncScheduler, with two passes in flight.  `second_runner` is the output for model runner V2.
    `draft_len` enables speculative decoding with as many drafts, of the kind `drafter`: "ngram" needs no memory,
    "eagle" takes slots ahead and recomputes the last block of a cached prefix.  `retention_interval` is
    prefix_cache_retention_interval: windows keep cached blocks at its multiples (None: all; 0: only at the ends of
    prompts, the default of servers since 0.32.0 at the latest).  `resets_running`: a flush preempts the
    running requests (reset_prefix_cache with reset_running_requests).  `sleeps`: a pause is a sleep at level 1, which
    discards the KV.  `external_len` enables a KV connector, whose
    store has so many tokens of each prompt; with `late_loads` it loads them in the background.  If it `saves`, it gets
    the KV of each ended request, whose blocks are kept until then.  `cpu_chunks` enables
    the offloading connector: so many chunks of CPU memory, each for `chunk_blocks` blocks, with `eviction` by "lru" or
    "arc".  With an `offloader` "eager" or "lazy" it is the SimpleCPUOffloadConnector in this mode, whose chunks are
    blocks.  With `sync_loads` it loads within the step.  With `has_disk` a file system is the second tier behind it.
    Beside `external_len` both are below the release's MultiConnector.  A side of a pair has the `role` "prefill" or
    "decode", and the connector between them; if it `has_both_roles`, its kv_role is "kv_both".  The side to which a
    request is submitted serves a prompt of at most `local_len` tokens alone, without a transfer; if the pair is
    `two_way`, it decodes the others, too, and the other side computes their prompts.  With `push` the prefill side
    writes blocks of the decode side, which else reads those of the prefill side; if the router `routes_at_once`, a
    request goes to both sides at once, else to the decode side with the answer of the prefill side.  After a failed
    load a request computes the tokens itself, or without `recomputes_loads` it ends.  With `seeds` some requests are
    sampled with a seed, if a model runs.  `kv_events` is enable_kv_cache_events.  With `streaming_input` some requests
    wait for further input, the turns of a session.
    """

    role: Annotated[str, OneOf((BOTH, PREFILL, DECODE))] = BOTH
    has_both_roles: Annotated[bool, Drawn((False, False, True))] = False
    local_len: Annotated[int, within(0, MAX_CONTEXT_LEN), Drawn((0, 8, 4, 16))] = 0
    two_way: Annotated[bool, PartOf("has_both_roles")] = False
    push: Annotated[bool, Drawn((False, False, False, True)), IfReleaseHas("pushes")] = False
    routes_at_once: Annotated[bool, PartOf("push")] = False
    block_size: BlockSize = 4
    num_blocks: Annotated[int, within(2, MAX_BLOCKS)] = 96
    windows: Annotated[tuple[Window | None, ...], Windows] = (5,)
    window_block_sizes: Annotated[tuple[BlockSize, ...], Windows, PartOf("windows")] = ()
    windows_first: bool | Annotated[int, within(0, MAX_WINDOWS)] = False
    state_groups: Annotated[int, within(0, 4)] = 0
    all_states: Annotated[bool, PartOf("state_groups"), IfReleaseHas("all_states")] = False
    max_running_requests: Annotated[int, within(1, 1024)] = 4
    max_context_len: Annotated[int, within(8, MAX_CONTEXT_LEN), Drawn((64, 48, 96))] = 192
    chunk_len: Annotated[int, within(1, 65536), Drawn((8, 4, 16, 32))] = 8
    policy: Annotated[str, OneOf((FIRST_COME, PRIORITY)), Drawn((FIRST_COME, FIRST_COME, PRIORITY))] = FIRST_COME
    prefix_caching: Annotated[bool, Drawn((True, True, True, False))] = True
    asynchronous: Annotated[bool, Drawn((False, True))] = False
    second_runner: Annotated[bool, Drawn((False, True)), IfReleaseHas("second_runner")] = False
    resets_running: Annotated[bool, Drawn((False, False, True))] = False
    sleeps: Annotated[bool, Drawn((False, False, True))] = False
    watermark: Annotated[float, within(0, 0.5), IfReleaseHas("watermark")] = 0.0
    retention_interval: Annotated[Annotated[int, msgspec.Meta(ge=0)] | None, IfReleaseHas("retention_interval")] = None
    external_len: Annotated[int, within(0, MAX_CONTEXT_LEN)] = 0
    late_loads: bool = False
    saves: Annotated[bool, PartOf("external_len"), Drawn((False, False, True))] = False
    cpu_chunks: Annotated[int, within(0, MAX_BLOCKS), IfReleaseHas("cpu_memory")] = 0
    offloader: Annotated[str, OneOf((CHUNKS, EAGER, LAZY)), PartOf("cpu_chunks")] = CHUNKS
    chunk_blocks: Annotated[int, within(1, 16), PartOf("cpu_chunks")] = 1
    eviction: Annotated[str, OneOf((LRU, ARC)), PartOf("cpu_chunks"), Drawn((LRU, ARC))] = LRU
    sync_loads: Annotated[bool, PartOf("cpu_chunks"), Drawn((False, True))] = False
    has_disk: Annotated[bool, PartOf("cpu_chunks"), Drawn((False, True)), IfReleaseHas("disk")] = False
    recomputes_loads: bool = True
    draft_len: Annotated[int, within(1, 16)] | None = None
    drafter: Annotated[str, OneOf((NGRAM, EAGLE)), PartOf("draft_len"), Drawn((NGRAM, EAGLE))] = NGRAM
    seeds: bool = False
    kv_events: Annotated[bool, Drawn((False, False, False, True))] = False
    streaming_input: Annotated[bool, Drawn((False, False, True)), IfReleaseHas("streaming_input")] = False

    main = ("block_size", "num_blocks", "windows", "chunk_len", "asynchronous")
    needs = (
        Needs("cpu_chunks", {"prefix_caching": (True,)}),
        Needs("offloader", {"chunk_blocks": (1,), "eviction": (LRU,), "sync_loads": (False,), "has_disk": (False,)}),
        Needs("offloader", {"external_len": (0,), "cpu_chunks": range(1, MAX_BLOCKS)}),
        Needs("role", {"external_len": (0,), "cpu_chunks": (0,), "sleeps": (False,)}),
        Needs("two_way", {"has_both_roles": (True,), "push": (False,)}),
        *(Needs(setting, {"role": (PREFILL, DECODE)}) for setting in ("local_len", "push")),
        Needs("routes_at_once", {"push": (True,)}),
        Needs("kv_events", {"prefix_caching": (True,), "cpu_chunks": (0,), "role": (BOTH,)}),
        Needs("streaming_input", {"role": (BOTH,), "external_len": (0,)}),
        Needs("all_states", {"prefix_caching": (True,), "draft_len": (None,), "second_runner": (False,)}),
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_groups()
        if self.draft_len is not None and self.chunk_len <= self.draft_len:
            raise InvalidConfig(f"chunk_len is {self.chunk_len}, want more than draft_len {self.draft_len}")
        if self.has_both_roles and self.role == BOTH:
            raise InvalidConfig('has_both_roles is true with role "both", want false: it is of a side of a pair')
        if self.late_loads and not self.external_len:
            raise InvalidConfig("late_loads is true without external_len, want false")
        if self.saves and not self.late_loads:
            raise InvalidConfig("saves is true without late_loads, want false")
        if self.external_len and self.cpu_chunks and not self.late_loads:
            raise InvalidConfig("late_loads is false with cpu_chunks and external_len, want true")
        if self.chunk_len < self.max_running_requests:
            raise InvalidConfig(f"chunk_len is {self.chunk_len}, want at least max_running_requests")
        slots = self.num_blocks * self.largest_block_size
        if max(slots, self.cpu_chunks * self.chunk_blocks * self.block_size) > MAX_SLOTS:
            raise InvalidConfig(f"num_blocks and cpu_chunks have more than {MAX_SLOTS} slots; make them smaller")
        if self.has_disk and self.cpu_chunks > MAX_CHUNKS_ON_DISK:
            raise InvalidConfig(f"cpu_chunks is {self.cpu_chunks} with has_disk, want at most {MAX_CHUNKS_ON_DISK}")
        if self.num_blocks < (least := least_blocks(self)):
            raise InvalidConfig(f"num_blocks is {self.num_blocks}, want at least {least} for one request")

    def _check_groups(self) -> None:
        sizes = [group.block_len for group in self.groups]
        if len(self.window_block_sizes) not in (0, len(self.windows)):
            raise InvalidConfig(f"window_block_sizes has {len(self.window_block_sizes)} entries, want one per window")
        if max(sizes) % self.block_size or any(self.block_size % size and size % self.block_size for size in sizes):
            raise InvalidConfig(f"window_block_sizes is {list(self.window_block_sizes)}, want multiples of block_size")
        if self.all_states and not self.state_groups:
            raise InvalidConfig("all_states is true without state_groups, want false")
        if self.all_states and set(sizes) != {self.block_size}:
            raise InvalidConfig("window_block_sizes differ from block_size, which a release refuses with all_states")
        if self.state_groups and self.asynchronous and self.draft_len is not None:
            raise InvalidConfig("asynchronous and draft_len are set with state_groups: the three are not driven")
        if self.state_groups and self.streaming_input and self.draft_len is not None:
            raise InvalidConfig("streaming_input and draft_len are set with state_groups: the three are not driven")
        if self.state_mode == ALIGN and self.external_len and not self.late_loads:
            raise InvalidConfig(
                "late_loads is false with external_len and state_groups, want true, or prefix_caching false"
            )
        if self.state_mode == ALIGN and (self.draft_len or 0) >= self.block_size:
            raise InvalidConfig(f"draft_len is {self.draft_len}, want less than block_size with state_groups")
        if self.state_mode == ALIGN and self.chunk_len < max(sizes):
            raise InvalidConfig(f"chunk_len is {self.chunk_len}, want at least the tokens of a block with state_groups")

    @property
    def state_mode(self) -> str:
        """The mamba_cache_mode."""
        if not self.state_groups or not self.prefix_caching:
            return NONE
        return ALL if self.all_states else ALIGN

    @property
    def groups(self) -> tuple[LayerGroup, ...]:
        sizes = self.window_block_sizes or (self.block_size,) * len(self.windows)
        state = LayerGroup(STATE_WINDOW, self.max_context_len if self.state_mode == NONE else self.block_size, True)
        groups = [*map(LayerGroup, self.windows, sizes)]
        whole_at = len(groups) if self.windows_first is True else self.windows_first
        groups.insert(whole_at, LayerGroup(None, self.block_size))
        return (*groups, *(state,) * self.state_groups)

    @property
    def largest_block_size(self) -> int:
        """The tokens of the largest block that has KV of each token."""
        return max((self.block_size, *self.window_block_sizes))

    @property
    def most_launches(self) -> int:
        return 2 if self.asynchronous else 1

    @property
    def lookahead_len(self) -> int:
        """The tokens beyond the drafts for which blocks are allocated."""
        return self.draft_len or 0 if self.drafter == EAGLE else 0

    @property
    def receives(self) -> bool:
        """Whether this side of a pair decodes requests of which the other side computes the prompts."""
        return self.role == DECODE or self.two_way

    @property
    def sends(self) -> bool:
        """Whether this side of a pair computes prompts of requests that the other side decodes."""
        return self.role == PREFILL or self.two_way

    @property
    def faults(self) -> tuple[str, ...]:
        """The faults of the KV connector."""
        if self.role != BOTH:
            of_decode = () if self.push else tuple(LINK_FAULTS)
            return of_decode if self.receives else (LINK_FAILS, LINK_DELAY) * self.push
        if self.cpu_chunks or self.late_loads:
            of_host = *((STORE_LATE,) if self.cpu_chunks or self.saves else ()), *(DISK_FAULTS if self.has_disk else ())
            return *((LOAD_FAILS,) if self.late_loads else ()), LOAD_LATE, *of_host
        is_driven = self.external_len and len(self.groups) == 1 and self.draft_len is None
        return (LOAD_FAILS,) if is_driven else ()  # a failed load is reported by its blocks, which one group can have

    options: ClassVar[Sequence[str]] = ("adapter", "prompt_logprobs", SEQUENCES)  # of a request

    @property
    def shape(self) -> Shape:
        pools = [Pool("blocks", self.num_blocks, group.window, group.has_states) for group in self.groups]
        faults = [fault for fault in CONNECTOR_FAULTS if fault not in self.faults]
        talks = [] if self.streaming_input else [name_of(op) for op in SESSION_OPS]
        unused = [*([ACCEPT] if self.draft_len is None else []), *talks, *faults]
        sizes = (self.block_size, pools, self.chunk_len, self.max_running_requests, self.max_context_len)
        slow = LOAD_LATE if self.cpu_chunks else ""
        return Shape(
            *sizes,
            unused=unused,
            uses_before_backup=int(self.cpu_chunks > 0),
            slow_copy=slow,
            sessions_rewind=False,
            samples=self.seeds,
            options=[one for one in self.options if one != SEQUENCES or self.role == BOTH],
        )


def least_blocks(config: VllmConfig) -> int:
    """The blocks of the longest request; a release does not start with fewer."""
    context, drafts = config.max_context_len, config.draft_len or 0
    blocks = int(config.watermark * config.num_blocks)
    for window, size, has_states in config.groups:
        if has_states:
            blocks += drafts + {NONE: 1, ALIGN: 2, ALL: -(-context // size)}[config.state_mode]
        elif window is None:
            blocks += -(-(context + config.lookahead_len) // size)
        else:
            kept = min(window - 1 + config.most_launches * config.chunk_len + 2 * drafts, context)
            blocks += -(-kept // size) + 1
    return blocks
