"""The configuration of a vLLM engine core, with all that follows from its plain settings; imports nothing of vLLM."""

import math
import os
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Self

import msgspec

from swarden.harness.core.errors import InvalidConfig
from swarden.harness.core.ops import Flush
from swarden.harness.core.target import Draw, Pool, Shape, Tier
from swarden.harness.engines.vllm.boot import RUNNER_SWITCH, VllmRelease
from swarden.harness.engines.vllm.connector import LOAD_FAILS, LOAD_FAULTS, LOAD_LATE
from swarden.harness.engines.vllm.layers import MAX_BLOCKS, MAX_CONTEXT_LEN, POOL, LayerGroup
from swarden.harness.engines.vllm.parts import disk, mooncake, pair
from swarden.harness.engines.vllm.parts.disk import SecondTier
from swarden.harness.engines.vllm.parts.drafts import NGRAM, Drafts
from swarden.harness.engines.vllm.parts.grammars import Grammars
from swarden.harness.engines.vllm.parts.kv_events import KvEvents
from swarden.harness.engines.vllm.parts.lmcache import LmCache
from swarden.harness.engines.vllm.parts.mooncake import Mooncake
from swarden.harness.engines.vllm.parts.offload import Offload
from swarden.harness.engines.vllm.parts.pair import Pairing
from swarden.harness.engines.vllm.parts.part import VllmPart
from swarden.harness.engines.vllm.parts.pause import Pauses
from swarden.harness.engines.vllm.parts.ranks import FAULTS as OF_RANKS
from swarden.harness.engines.vllm.parts.ranks import RankGroup
from swarden.harness.engines.vllm.parts.states import States, num_blocks_of
from swarden.harness.engines.vllm.parts.store import Storing
from swarden.harness.engines.vllm.parts.streaming import Streaming
from swarden.harness.kit.grammars import FAULTS as OF_GRAMMARS
from swarden.harness.kit.grammars import GRAMMAR
from swarden.harness.kit.launch import Line, context_of, entry_of_model, table
from swarden.harness.kit.part import merged, server_needs
from swarden.harness.kit.settings import Drawn, IfReleaseHas, OneOf, PartOf, Settings, drawn, made, replaced, within
from swarden.harness.kit.tags import TagMemory
from swarden.invariants.limits import ARRIVAL, Ends, Replays

FIRST_COME, PRIORITY = "fcfs", "priority"
SETTINGS_FOR: Mapping[str, Mapping[str, Any]] = {"rivals": {"policy": PRIORITY}, "returning": {"prefix_caching": True}}
NOT_DRAWN_YET: dict[str, Any] = {"num_blocks": 1 << 16}  # a pool that every request fits into
LARGE_POOLS: Mapping[str, int] = {"num_blocks": 4096}
MAX_SLOTS = 1 << 24  # of the pool, and of the CPU memory of the offloading connector
SEQUENCES = "sequences"
MAX_WINDOWS = 8
FAILURE_POLICY, RECOMPUTE = "kv_load_failure_policy", "recompute"
PART_FAULTS = LOAD_FAULTS | pair.FAULTS | disk.FAULTS | mooncake.FAULTS | OF_RANKS | OF_GRAMMARS

MODELS: Mapping[str, Mapping[str, Any]] = {  # layers beside those of full attention, by the name of a model
    "gemma-?3": {"windows": (1024,) * 5, "windows_first": True},
    "gemma-?4": {"windows": (1024,) * 5, "windows_first": True, "block_size": 32, "window_block_sizes": (16,) * 5},
    "gpt-oss": {"windows": (128,), "windows_first": True},
    "qwen3-next|qwen3[.]5|nemotron-h|falcon-h1|granite-4|kimi-linear": {"state_groups": 3, "block_size": 800},
}
BlockSize = Annotated[int, within(1, 4096)]
Window = Annotated[int, within(1, 65536)]
Windows = msgspec.Meta(max_length=MAX_WINDOWS)


class VllmConfig(Settings, frozen=True):
    """One engine core. Lengths are in tokens; a window counts the token itself, as in vLLM.

    `num_blocks` are the blocks of the pool without the null block.  A group of layers has full attention; each
    of `windows` is a further group (None: of full attention, too), with blocks of `window_block_sizes` tokens (empty:
    block_size).  With `windows_first` these groups come first, or so many of them, as in models whose first layer has
    a window: a release makes the groups in the order in which such layers first appear.  `chunk_len` is
    max_num_batched_tokens: the tokens of one pass, of which a request gets `long_prefill_token_threshold` at most, if
    that is set.  `policy` is the order of the waiting requests; with "priority", a request of lower priority is
    preempted first.  `asynchronous` is the AsyncScheduler, with two passes in flight.
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
    long_prefill_token_threshold: Annotated[int, within(0, 65536)] = 0
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
    mooncake: Mooncake = Mooncake()
    lmcache: LmCache = LmCache()
    recomputes_loads: bool = True
    drafts: Drafts = Drafts()
    seeds: bool = False
    events: KvEvents = KvEvents()
    streaming: Streaming = Streaming()
    group: RankGroup = RankGroup()
    grammars: Grammars = Grammars()

    launch_table = table(
        max_running_requests=(Line.number, "max-num-seqs", 256),
        policy=(Line.word, "scheduling-policy", FIRST_COME),
        prefix_caching=lambda line: line.has("enable-prefix-caching", usual=True),
        watermark=(Line.number, "watermark", 0.0),
        long_prefill_token_threshold=(Line.length, "long-prefill-token-threshold", 0),
        recomputes_loads=lambda line: line.mapping("kv-transfer-config").get(FAILURE_POLICY) == RECOMPUTE,
    )
    servers: ClassVar[Sequence[str]] = ("vllm serve", "vllm.entrypoints.openai.api_server")
    of_one_side = ("role",)
    main = ("block_size", "num_blocks", "windows", "chunk_len", "asynchronous")
    options: ClassVar[Sequence[str]] = ("adapter", "prompt_logprobs", SEQUENCES)  # of a request

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_groups()
        self.check_chunk(self.max_running_requests, "at least max_running_requests")
        if max(self.num_blocks * self.largest_block_len, self.offload.num_host_blocks * self.block_size) > MAX_SLOTS:
            raise InvalidConfig(f"num_blocks and cpu_chunks have more than {MAX_SLOTS} slots; make them smaller")
        if self.num_blocks < (least := self.least_blocks):
            raise InvalidConfig(f"num_blocks is {self.num_blocks}, want at least {least} for one request")

    @classmethod
    def of_line(cls, line: Line) -> Self:
        """With layers by the name of the model.  What depends on the GPU is that of one with less than 70 GB."""
        of_model = entry_of_model(line, MODELS)
        windows, chunk = of_model.get("windows", ()), line.number("max-num-batched-tokens", 2048)
        block = line.number("block-size", of_model.get("block_size", 16))
        line.fit(block, chunk, *windows)
        values = cls.launched(line) | {**of_model}
        running, drafts = values["max_running_requests"], values.get("draft_len") or 0
        has_second = line.has("VLLM_USE_V2_MODEL_RUNNER", usual=line.is_since("0.32.0"))
        is_refused = values.get("drafter") == NGRAM and not has_second  # by the first runner with the AsyncScheduler
        interval = line.number("prefix-cache-retention-interval", 0 if line.is_since("0.32.0") else None)
        values |= {
            "block_size": block,
            "windows": tuple([line.scaled(window) for window in windows]),
            "chunk_len": max(line.scaled(chunk), running * (2 if drafts else 1), drafts + 1),
            "max_context_len": context_of(line, "max-model-len"),
            "second_runner": has_second,
            "asynchronous": line.has("async-scheduling", usual=not is_refused),
            "retention_interval": interval and -(-line.scaled(interval) // block) * block,
        }
        pool = min(line.pool_len // block, line.number("num-gpu-blocks-override", line.pool_len))
        config = made(cls, values | {"num_blocks": MAX_SLOTS // block})
        return replaced(config, num_blocks=max(pool, config.least_blocks))

    def _check_groups(self) -> None:
        sizes = [group.block_len for group in self.groups]
        if len(self.window_block_sizes) not in (0, len(self.windows)):
            raise InvalidConfig(f"window_block_sizes has {len(self.window_block_sizes)} entries, want one per window")
        if max(sizes) % self.block_size or any(self.block_size % size and size % self.block_size for size in sizes):
            raise InvalidConfig(f"window_block_sizes is {list(self.window_block_sizes)}, want multiples of block_size")

    def check_chunk(self, least: int, want: str) -> None:
        if self.chunk_len < least:
            raise InvalidConfig(f"chunk_len is {self.chunk_len}, want {want}")

    def check_release(self, release: VllmRelease) -> None:
        """Raise InvalidConfig if the release cannot be built with these settings."""
        for part in self.parts:
            part.check_release(self, release)

    @property
    def parts(self) -> Sequence[VllmPart]:
        """The capabilities that it has."""
        of_connectors = (self.pair, self.store, self.offload, self.tier, self.mooncake, self.lmcache)
        parts = (*of_connectors, self.states, self.drafts, self.events, self.streaming, self.group, self.grammars)
        return [part for part in parts if part.is_in(self)]

    @property
    def failure_policy(self) -> str:
        """The kv_load_failure_policy."""
        return RECOMPUTE if self.recomputes_loads else "fail"

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
    def largest_block_len(self) -> int:
        """The tokens of the largest block that has KV of each token."""
        return max((self.block_size, *self.window_block_sizes))

    @property
    def most_launches(self) -> int:
        return 2 if self.asynchronous else 1

    @property
    def least_blocks(self) -> int:
        """The blocks of the longest request; a release does not start with fewer."""
        context, drafts = self.max_context_len, self.drafts.count
        blocks = int(self.watermark * self.num_blocks)
        for window, size, has_states in self.groups:
            if has_states:
                blocks += drafts + num_blocks_of(self.state_mode, context, size)
            elif window is None:
                blocks += -(-(context + self.drafts.lookahead_len) // size)
            else:
                kept = min(window - 1 + self.most_launches * self.chunk_len + 2 * drafts, context)
                blocks += -(-kept // size) + 1
        return blocks

    @property
    def replays(self) -> Replays:
        """The prefixes that the release promises: `replay_boundaries` (0.33.0, kv_cache_coordinator.py:65).

        Others are kept with retention_interval None alone: `reachable_block_mask`.
        """
        is_sparse = self.retention_interval is not None or self.states.is_on
        whole = math.lcm(*[group.block_len for group in self.groups])  # drop_eagle_block
        dropped = whole if self.drafts.lookahead_len else 0
        return Replays(Ends.PROMPT if is_sparse else Ends.PAGES, dropped, dropped)

    @property
    def limits(self) -> Mapping[str, Any]:
        """Limits in the snapshots."""
        names = ("max_running_requests", "max_context_len", "chunk_len", "most_launches")
        limits: dict[str, Any] = {"names_aborts": not self.pair.is_on, **{name: getattr(self, name) for name in names}}
        limits |= {"page_size": self.block_size, "mixes_batches": True, "shares_prefixes": self.prefix_caching}
        limits["waits_by"] = (PRIORITY, ARRIVAL) if self.policy == PRIORITY else (ARRIVAL,)
        limits["evicts_longest_idle"] = self.prefix_caching and not (self.faults or self.states.is_on)
        limits["replays"] = self.replays if self.prefix_caching else None
        return limits | merged(part.limits(self) for part in self.parts)

    def prepare(self, release: VllmRelease) -> None:
        """Set what the release reads when it makes its configurations and the scheduler."""
        os.environ[RUNNER_SWITCH] = str(int(self.second_runner))
        release.model_config.max_model_len = self.max_context_len

    def arguments(self, release: VllmRelease) -> dict[str, dict[str, Any]]:
        """The arguments of the release's configurations, by the name of the class."""
        cache = {"block_size": self.block_size, "enable_prefix_caching": self.prefix_caching, "cache_dtype": "auto"}
        retention = {"prefix_cache_retention_interval": self.retention_interval}
        scheduling = {
            "max_num_seqs": self.max_running_requests,
            "max_num_batched_tokens": self.chunk_len,
            "max_model_len": self.max_context_len,
            "enable_chunked_prefill": True,
            "async_scheduling": self.asynchronous,
            "is_encoder_decoder": False,
            "policy": self.policy,
            "watermark": self.watermark,
            "long_prefill_token_threshold": self.long_prefill_token_threshold,
        }
        arguments = defaultdict[str, dict[str, Any]](
            dict,
            CacheConfig=cache,
            SchedulerConfig=scheduling,
            KVCacheConfig={"num_blocks": self.num_blocks + 1, "kv_cache_tensors": [], **retention},
        )
        for part in self.parts:
            for name, further in part.arguments(self, release).items():
                arguments[name].update(further)
        return arguments

    def tag_memory(self) -> TagMemory:
        """The stand-in for the memory of the device."""
        return TagMemory(self.num_blocks, self.largest_block_len)

    def with_chunk(self, *lens: int) -> Mapping[str, int]:
        """The setting with passes of at least so many tokens."""
        return {"chunk_len": max(self.chunk_len, *lens)}

    def for_drafts(self) -> Mapping[str, int]:
        """The settings with drafts; beside states, with one pass in flight."""
        chunk = self.with_chunk(2 * self.max_running_requests, 8)
        return {**chunk, "asynchronous": self.asynchronous and not self.states.is_on}

    @property
    def faults(self) -> Mapping[str, str]:
        """The faults of the KV connectors, each with its effect."""
        return merged(part.faults(self) for part in self.parts)

    @property
    def shape(self) -> Shape:
        used = {name for part in self.parts for name in part.uses(self)}
        fails = (LOAD_FAILS,) * (LOAD_FAILS in used)
        return Shape(
            **{name: limit for name, limit in self.limits.items() if name in Shape._fields},
            pools=[Pool(POOL, self.num_blocks, group.window, group.has_states) for group in self.groups],
            unused=[name for name in (*Drafts.ops, *Streaming.ops, *PART_FAULTS) if name not in used],
            tiers=[Tier(LOAD_LATE, fails, Flush() if self.offload.is_on else None)] * (LOAD_LATE in used),
            sessions_rewind=False,
            turns_have_grammars=self.grammars.is_on,
            samples=self.seeds,
            options=[option for option in self.options if option != SEQUENCES or not self.pair.is_on]
            + [GRAMMAR] * (4 * self.grammars.is_on),
            **merged(part.shape(self) for part in self.parts),
        )


SERVER_NEEDS = {  # in the order of the documents
    **server_needs(Pairing),
    "windows": "windowed model",
    **server_needs(States, Streaming, Storing, Offload, SecondTier, Mooncake, Drafts),
    "policy": "priorities",
    **server_needs(KvEvents, RankGroup, Grammars),
}


def config_for(shape: Shape) -> Mapping[str, Any]:
    """The settings for this shape: one pool for all groups."""
    windowed = [pool.window for pool in shape.pools if pool.window is not None]
    if len(shape.pools) != len(windowed) + 1:
        raise InvalidConfig("want a full pool, and windowed ones beside it; an engine core of vllm has such groups")
    return {
        "block_size": shape.page_size,
        "num_blocks": sum(pool.units for pool in shape.pools),
        "windows": windowed,
        "windows_first": shape.pools[0].window is not None,
        "chunk_len": shape.chunk_len or VllmConfig().chunk_len,
        "max_running_requests": shape.max_running_requests,
        "max_context_len": shape.max_context_len,
    }


def plain_config(draw: Draw, *, has: Callable[[str], bool]) -> VllmConfig:
    """An engine core without a KV connector, states or drafts; its pool is not drawn yet."""
    running = draw.one_of((4, 2, 3, 6))
    window = draw.one_of((5, 4, 2, 8, 3, 16))
    size = draw.one_of((4, 1, 2, 8))
    windows = draw.one_of(((window,), (window, draw.one_of((4, 9, 3))), (), (window,) * 2))
    runners = ("second_runner",) if has("second_runner") else ()
    names = ("max_context_len", "chunk_len", "policy", "prefix_caching", "asynchronous", *runners)
    values = drawn(draw, VllmConfig, *names) | drawn(draw, Pauses)
    values["chunk_len"] = max(running, values["chunk_len"])
    if has("retention_interval"):
        values["retention_interval"] = draw.one_of((0, 0, None))  # servers have 0
    values |= NOT_DRAWN_YET | {"block_size": size, "windows": windows, "max_running_requests": running}
    if windows:
        values["windows_first"] = draw.one_of((True, False))
        values["window_block_sizes"] = (size * draw.one_of((1, 1, 2)),) * len(windows)
    return made(VllmConfig, values)


def decode_config(draw: Draw, prefill: VllmConfig) -> VllmConfig:
    """The configuration of a prefill side, with another scheduler."""
    running = draw.one_of((4, 2, 8, 1))
    return replaced(
        prefill,
        max_running_requests=running,
        **prefill.with_chunk(running),
        asynchronous=draw.one_of((False, True)),
        prefix_caching=prefill.prefix_caching if prefill.states.is_on else draw.one_of((True, True, False)),
        recomputes_loads=draw.one_of((True, False)),
    )


def with_blocks(draw: Draw, config: VllmConfig) -> VllmConfig:
    """The configuration with a small pool."""
    return replaced(config, num_blocks=config.least_blocks + draw.one_of((0, 1, 2, 4, 8, 16, 40)))
