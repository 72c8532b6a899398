"""Random configurations of a vLLM engine core with small pools, alone or as the sides of a pair."""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from swarden.harness.core.target import Draw
from swarden.harness.engines.vllm.config import (
    ALIGN,
    CHUNKS,
    DECODE,
    EAGER,
    EAGLE,
    LAZY,
    LOAD_FAILS,
    PREFILL,
    PRIORITY,
    VllmConfig,
    least_blocks,
)
from swarden.harness.kit.settings import drawn

SETTINGS_FOR: Mapping[str, Mapping[str, Any]] = {"rivals": {"policy": PRIORITY}, "returning": {"prefix_caching": True}}
NEEDS_HOST = ("outlasting", "returning")


def random_config(draw: Draw, load: str, *, has: Callable[[str], bool]) -> VllmConfig:
    """An engine core with a small pool for a load, for a release that `has` these features."""
    config = msgspec.structs.replace(plain_config(draw, has=has), **SETTINGS_FOR.get(load, {}))
    kind = draw.one_of(("plain", "loads", "drafts", "states", "loads", "states", "offloading"))
    if load in NEEDS_HOST and has("cpu_memory") and draw.one_of((True, False)):
        kind = "offloading"
    if kind == "states":
        config = _with_states(draw, config, has=has)
        kind = draw.one_of((kind, kind, "loads", "offloading"))
    if kind == "loads":
        external_len = config.block_size * draw.one_of((4, 2, 8))
        late_loads = draw.one_of((False, True, True)) or config.state_mode == ALIGN
        saves = drawn(draw, VllmConfig, "saves") if late_loads else {}
        config = msgspec.structs.replace(config, external_len=external_len, late_loads=late_loads, **saves)
        if LOAD_FAILS in config.faults and not late_loads:
            config = msgspec.structs.replace(config, recomputes_loads=draw.one_of((True, True, False)))
    if kind == "offloading" and has("cpu_memory"):
        config = _with_offloading(draw, config, has=has)
    can_have_drafts = (kind == "offloading" or config.state_groups) and not config.all_states
    if kind == "drafts" or (can_have_drafts and draw.one_of((False, False, True))):
        config = with_drafts(draw, config, has=has)
    if config.prefix_caching and not config.cpu_chunks:
        config = msgspec.structs.replace(config, **drawn(draw, VllmConfig, "kv_events"))
    if has("streaming_input") and not config.external_len and not (config.state_groups and config.draft_len):
        config = msgspec.structs.replace(config, **drawn(draw, VllmConfig, "streaming_input"))
    return with_blocks(draw, config)


def plain_config(draw: Draw, *, has: Callable[[str], bool]) -> VllmConfig:
    """An engine core without a KV connector, states or drafts; its pool is not drawn yet."""
    running = draw.one_of((4, 2, 3, 6))
    window = draw.one_of((5, 4, 2, 8, 3, 16))
    size = draw.one_of((4, 1, 2, 8))
    windows = draw.one_of(((window,), (window, draw.one_of((4, 9, 3))), (), (window,) * 2))
    runners = ("second_runner",) if has("second_runner") else ()
    names = ("max_context_len", "chunk_len", "policy", "prefix_caching", "asynchronous", *runners)
    values = drawn(draw, VllmConfig, *names, "resets_running", "sleeps")
    values["chunk_len"] = max(running, values["chunk_len"])
    if has("retention_interval"):
        values["retention_interval"] = draw.one_of((0, 0, None))  # servers have 0
    config = VllmConfig(block_size=size, num_blocks=1 << 20, windows=windows, max_running_requests=running, **values)
    if config.windows:
        config = msgspec.structs.replace(config, windows_first=draw.one_of((True, False)))
        size = config.block_size * draw.one_of((1, 1, 2))
        config = msgspec.structs.replace(config, window_block_sizes=(size,) * len(config.windows))
    return config


def pair_configs(draw: Draw, *, has: Callable[[str], bool]) -> tuple[VllmConfig, VllmConfig]:
    """One model, but other pools, batches and schedulers; sometimes the decode side has drafts."""
    roles = drawn(draw, VllmConfig, "has_both_roles", "local_len")
    first = msgspec.structs.replace(plain_config(draw, has=has), sleeps=False, role=PREFILL, **roles)
    if draw.one_of((False, False, True)):
        first = _with_states(draw, first, has=has)
    running = draw.one_of((4, 2, 8, 1))
    second = msgspec.structs.replace(
        first,
        role=DECODE,
        max_running_requests=running,
        chunk_len=max(first.chunk_len, running),
        asynchronous=draw.one_of((False, True)),
        prefix_caching=first.prefix_caching if first.state_groups else draw.one_of((True, True, False)),
        recomputes_loads=draw.one_of((True, False)),
    )
    if not first.all_states and draw.one_of((False, False, True)):
        second = with_drafts(draw, second, has=has)
    if has("pushes"):
        pushes = drawn(draw, VllmConfig, "push")
        first, second = (msgspec.structs.replace(side, **pushes) for side in (first, second))
    return with_blocks(draw, first), with_blocks(draw, second)


def with_drafts(draw: Draw, config: VllmConfig, *, has: Callable[[str], bool]) -> VllmConfig:
    """The configuration with speculative decoding."""
    draft_len = draw.one_of((3, 1, 5))
    config = msgspec.structs.replace(
        config,
        asynchronous=config.asynchronous and not config.state_groups,
        chunk_len=max(config.chunk_len, 2 * config.max_running_requests, 8),
        draft_len=min(draft_len, config.block_size - 1) or None if config.state_mode == ALIGN else draft_len,
        **drawn(draw, VllmConfig, "drafter"),
    )
    if config.second_runner and not has("second_runner_ngrams"):
        config = msgspec.structs.replace(config, drafter=EAGLE)
    return config


def with_blocks(draw: Draw, config: VllmConfig) -> VllmConfig:
    """The configuration with a small pool."""
    spare = draw.one_of((0, 1, 2, 4, 8, 16, 40))
    return msgspec.structs.replace(config, num_blocks=least_blocks(config) + spare)


def _with_offloading(draw: Draw, config: VllmConfig, *, has: Callable[[str], bool]) -> VllmConfig:
    """The configuration with CPU memory. A chunk has two tokens at least: a prompt of one is loaded forever."""
    config = msgspec.structs.replace(config, prefix_caching=True, cpu_chunks=draw.one_of((40, 10, 20, 80)))
    offloaders = (CHUNKS, CHUNKS, *((EAGER, LAZY) if has("simple_offload") else ()))
    if (offloader := draw.one_of(offloaders if has("offloading") else offloaders[2:])) != CHUNKS:
        return msgspec.structs.replace(config, offloader=offloader)
    config = msgspec.structs.replace(
        config,
        chunk_blocks=draw.one_of((1, 1, 2)) if config.block_size > 1 else 2,
        **drawn(draw, VllmConfig, "eviction", "sync_loads", *(["has_disk"] if has("disk") else [])),
    )
    external_len = config.block_size * draw.one_of((0, 0, 4, 2, 8))
    return msgspec.structs.replace(config, external_len=external_len, late_loads=external_len > 0)


def _with_states(draw: Draw, config: VllmConfig, *, has: Callable[[str], bool]) -> VllmConfig:
    """The configuration with groups of Mamba layers."""
    sizes = (config.block_size, *config.window_block_sizes)
    can_keep_all = config.prefix_caching and len(set(sizes)) == 1 and has("all_states") and not config.second_runner
    return msgspec.structs.replace(
        config,
        state_groups=draw.one_of((1, 2)),
        all_states=can_keep_all and draw.one_of((False, True)),
        chunk_len=max(config.chunk_len, *sizes),
    )
