"""The configuration of a vLLM engine core, and its limits; imports nothing of vLLM."""

from collections.abc import Sequence
from typing import Annotated, ClassVar

import msgspec

from swarden.harness.core.errors import InvalidConfig
from swarden.harness.core.ops import Flush
from swarden.harness.core.target import Pool, Shape, Tier
from swarden.harness.engines.vllm.connector import LOAD_FAILS, LOAD_FAULTS, LOAD_LATE
from swarden.harness.engines.vllm.layers import MAX_BLOCKS, MAX_CONTEXT_LEN, POOL, LayerGroup
from swarden.harness.engines.vllm.parts import disk, pair
from swarden.harness.engines.vllm.parts.disk import SecondTier
from swarden.harness.engines.vllm.parts.drafts import Drafts
from swarden.harness.engines.vllm.parts.kv_events import KvEvents
from swarden.harness.engines.vllm.parts.offload import Offload
from swarden.harness.engines.vllm.parts.pair import Pairing
from swarden.harness.engines.vllm.parts.part import VllmPart
from swarden.harness.engines.vllm.parts.pause import Pauses
from swarden.harness.engines.vllm.parts.states import States, num_blocks_of
from swarden.harness.engines.vllm.parts.store import Storing
from swarden.harness.engines.vllm.parts.streaming import Streaming
from swarden.harness.kit.settings import Drawn, IfReleaseHas, OneOf, PartOf, Settings, within

FIRST_COME, PRIORITY = "fcfs", "priority"
MAX_SLOTS = 1 << 24  # of the pool, and of the CPU memory of the offloading connector
SEQUENCES = "sequences"
MAX_WINDOWS = 8
CONNECTOR_FAULTS = LOAD_FAULTS | pair.FAULTS | disk.FAULTS  # of the KV connectors

BlockSize = Annotated[int, within(1, 256)]
Window = Annotated[int, within(1, 65536)]
Windows = msgspec.Meta(max_length=MAX_WINDOWS)


class VllmConfig(Settings, frozen=True):
    """One engine core. Lengths are in tokens; a window counts the token itself, as in vLLM.

    `num_blocks` are the blocks of the pool without the null block.  A group of layers has full attention; each
    of `windows` is a further group (None: of full attention, too), with blocks of `window_block_sizes` tokens (empty:
    block_size).  With `windows_first` these groups come first, or so many of them, as in models whose first layer has
    a window: a release makes the groups in the order in which such layers first appear.  `chunk_len` is
    max_num_batched_tokens: the tokens of one pass.  `policy` is the order of the waiting requests; with "priority", a
    request of lower priority is preempted first.  `asynchronous` is the AsyncScheduler, with two passes in flight.
    `second_runner` is the output for model runner V2.  `retention_interval` is prefix_cache_retention_interval: windows
    keep cached blocks at its multiples (None: all; 0: only at the ends of prompts, the default of servers since 0.32.0
    at the latest).  After a failed load a request computes the tokens itself, or without `recomputes_loads` it ends.
    With `seeds` some requests are sampled with a seed, if a model runs.  The other settings are those of the parts.
    """

    pair: Pairing = Pairing()
    block_size: BlockSize = 4
    num_blocks: Annotated[int, within(2, MAX_BLOCKS)] = 96
    windows: Annotated[tuple[Window | None, ...], Windows] = (5,)
    window_block_sizes: Annotated[tuple[BlockSize, ...], Windows, PartOf("windows")] = ()
    windows_first: bool | Annotated[int, within(0, MAX_WINDOWS)] = False
    states: States = States()
    max_running_requests: Annotated[int, within(1, 1024)] = 4
    max_context_len: Annotated[int, within(8, MAX_CONTEXT_LEN), Drawn((64, 48, 96))] = 192
    chunk_len: Annotated[int, within(1, 65536), Drawn((8, 4, 16, 32))] = 8
    policy: Annotated[str, OneOf((FIRST_COME, PRIORITY)), Drawn((FIRST_COME, FIRST_COME, PRIORITY))] = FIRST_COME
    prefix_caching: Annotated[bool, Drawn((True, True, True, False))] = True
    asynchronous: Annotated[bool, Drawn((False, True))] = False
    second_runner: Annotated[bool, Drawn((False, True)), IfReleaseHas("second_runner")] = False
    pauses: Pauses = Pauses()
    watermark: Annotated[float, within(0, 0.5), IfReleaseHas("watermark")] = 0.0
    retention_interval: Annotated[Annotated[int, msgspec.Meta(ge=0)] | None, IfReleaseHas("retention_interval")] = None
    store: Storing = Storing()
    offload: Offload = Offload()
    tier: SecondTier = SecondTier()
    recomputes_loads: bool = True
    drafts: Drafts = Drafts()
    seeds: bool = False
    events: KvEvents = KvEvents()
    streaming: Streaming = Streaming()

    main = ("block_size", "num_blocks", "windows", "chunk_len", "asynchronous")
    options: ClassVar[Sequence[str]] = ("adapter", "prompt_logprobs", SEQUENCES)  # of a request

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_groups()
        if self.chunk_len < self.max_running_requests:
            raise InvalidConfig(f"chunk_len is {self.chunk_len}, want at least max_running_requests")
        if max(self.num_blocks * self.largest_block_size, self.offload.num_blocks * self.block_size) > MAX_SLOTS:
            raise InvalidConfig(f"num_blocks and cpu_chunks have more than {MAX_SLOTS} slots; make them smaller")
        if self.num_blocks < (least := least_blocks(self)):
            raise InvalidConfig(f"num_blocks is {self.num_blocks}, want at least {least} for one request")

    def _check_groups(self) -> None:
        sizes = [group.block_len for group in self.groups]
        if len(self.window_block_sizes) not in (0, len(self.windows)):
            raise InvalidConfig(f"window_block_sizes has {len(self.window_block_sizes)} entries, want one per window")
        if max(sizes) % self.block_size or any(self.block_size % size and size % self.block_size for size in sizes):
            raise InvalidConfig(f"window_block_sizes is {list(self.window_block_sizes)}, want multiples of block_size")

    @property
    def parts(self) -> Sequence[VllmPart]:
        """The capabilities that it has."""
        of_connectors = (self.pair, self.store, self.offload, self.tier)
        parts = (*of_connectors, self.states, self.drafts, self.events, self.streaming)
        return [part for part in parts if part.is_in(self)]

    @property
    def failure_policy(self) -> str:
        """The kv_load_failure_policy."""
        return "recompute" if self.recomputes_loads else "fail"

    @property
    def state_mode(self) -> str:
        """The mamba_cache_mode."""
        return self.states.mode(prefix_caching=self.prefix_caching)

    @property
    def groups(self) -> tuple[LayerGroup, ...]:
        sizes = self.window_block_sizes or (self.block_size,) * len(self.windows)
        groups = [*map(LayerGroup, self.windows, sizes)]
        whole_at = len(groups) if self.windows_first is True else self.windows_first
        groups.insert(whole_at, LayerGroup(None, self.block_size))
        return (*groups, *self.states.layers(self.block_size if self.prefix_caching else self.max_context_len))

    @property
    def largest_block_size(self) -> int:
        """The tokens of the largest block that has KV of each token."""
        return max((self.block_size, *self.window_block_sizes))

    @property
    def most_launches(self) -> int:
        return 2 if self.asynchronous else 1

    @property
    def faults(self) -> tuple[str, ...]:
        """The faults of the KV connectors."""
        faults = [fault for part in self.parts for fault in part.faults(self)]
        return tuple([fault for fault in CONNECTOR_FAULTS if fault in faults])

    @property
    def shape(self) -> Shape:
        pools = [Pool(POOL, self.num_blocks, group.window, group.has_states) for group in self.groups]
        ops = [op for part in (self.drafts, self.streaming) if not part.is_on for op in part.ops]
        sizes = (self.block_size, pools, self.chunk_len, self.max_running_requests, self.max_context_len)
        fails = [LOAD_FAILS] * (LOAD_FAILS in self.faults)
        return Shape(
            *sizes,
            unused=[*ops, *[fault for fault in CONNECTOR_FAULTS if fault not in self.faults]],
            uses_before_backup=int(self.offload.is_on),
            tiers=[Tier(LOAD_LATE, fails, Flush() if self.offload.is_on else None)] * (LOAD_LATE in self.faults),
            sessions_rewind=False,
            samples=self.seeds,
            options=[one for one in self.options if one != SEQUENCES or not self.pair.is_on],
        )


SERVER_NEEDS = dict(  # in the order of the documents
    [
        *(Pairing.server_need, ("windows", "windowed model"), States.server_need, Streaming.server_need),
        *(Storing.server_need, Offload.server_need, SecondTier.server_need, Drafts.server_need),
        *(("policy", "priorities"), KvEvents.server_need),
    ]
)


def least_blocks(config: VllmConfig) -> int:
    """The blocks of the longest request; a release does not start with fewer."""
    context, drafts = config.max_context_len, config.drafts.count
    blocks = int(config.watermark * config.num_blocks)
    for window, size, has_states in config.groups:
        if has_states:
            blocks += drafts + num_blocks_of(config.state_mode, context, size)
        elif window is None:
            blocks += -(-(context + config.drafts.lookahead_len) // size)
        else:
            kept = min(window - 1 + config.most_launches * config.chunk_len + 2 * drafts, context)
            blocks += -(-kept // size) + 1
    return blocks
