"""Random configurations of a vLLM engine core with small pools, alone or as the sides of a pair."""

from collections.abc import Callable, Mapping
from typing import Any

from swarden.harness.core.target import Draw
from swarden.harness.engines.vllm.config import PRIORITY, VllmConfig, least_blocks
from swarden.harness.engines.vllm.connector import LOAD_FAILS
from swarden.harness.engines.vllm.layers import ALIGN, ALL
from swarden.harness.engines.vllm.parts.drafts import with_drafts
from swarden.harness.engines.vllm.parts.kv_events import KvEvents
from swarden.harness.engines.vllm.parts.offload import with_offloading
from swarden.harness.engines.vllm.parts.pair import DECODE, PREFILL, Pairing
from swarden.harness.engines.vllm.parts.pause import Pauses
from swarden.harness.engines.vllm.parts.states import WIDE_STATES, with_states
from swarden.harness.engines.vllm.parts.store import with_loads
from swarden.harness.engines.vllm.parts.streaming import Streaming
from swarden.harness.kit.settings import drawn, made, replaced

SETTINGS_FOR: Mapping[str, Mapping[str, Any]] = {"rivals": {"policy": PRIORITY}, "returning": {"prefix_caching": True}}
RARER = (*("",) * 7, "limit", "small blocks", "wide states", "inside", "drafts in flight")
NEEDS_HOST = ("outlasting", "returning")


def random_config(draw: Draw, load: str, *, has: Callable[[str], bool]) -> VllmConfig:
    """An engine core with a small pool for a load, for a release that `has` these features."""
    config = replaced(plain_config(draw, has=has), **SETTINGS_FOR.get(load, {}))
    kind = draw.one_of(("plain", "loads", "drafts", "states", "loads", "states", "offloading"))
    if load in NEEDS_HOST and has("cpu_memory") and draw.one_of((True, False)):
        kind = "offloading"
    if kind == "states":
        config = with_states(draw, config, has=has)
        kind = draw.one_of((kind, kind, "loads", "offloading"))
    if kind == "loads":
        config = with_loads(draw, config)
        if config.store.loads_within_a_step and LOAD_FAILS in config.faults:
            config = replaced(config, recomputes_loads=draw.one_of((True, True, False)))
    if kind == "offloading" and has("cpu_memory"):
        config = with_offloading(draw, config, has=has)
    can_have_drafts = (kind == "offloading" or config.states.is_on) and config.state_mode != ALL
    if kind == "drafts" or (can_have_drafts and draw.one_of((False, False, True))):
        config = with_drafts(draw, config, has=has)
    if config.prefix_caching and not config.offload.is_on:
        config = replaced(config, **drawn(draw, KvEvents))
    if has("streaming_input") and not config.store.is_on and not (config.states.is_on and config.drafts.is_on):
        config = replaced(config, **drawn(draw, Streaming))
    return with_rarer(draw, with_blocks(draw, config), has=has)


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
    values |= {"block_size": size, "num_blocks": 1 << 20, "windows": windows, "max_running_requests": running}
    if windows:
        values["windows_first"] = draw.one_of((True, False))
        values["window_block_sizes"] = (size * draw.one_of((1, 1, 2)),) * len(windows)
    return made(VllmConfig, values)


def pair_configs(draw: Draw, *, has: Callable[[str], bool]) -> tuple[VllmConfig, VllmConfig]:
    """One model, but other pools, batches and schedulers; sometimes the decode side has drafts."""
    roles = drawn(draw, Pairing, "has_both_roles", "local_len")
    first = replaced(plain_config(draw, has=has), sleeps=False, role=PREFILL, **roles)
    if draw.one_of((False, False, True)):
        first = with_states(draw, first, has=has)
    running = draw.one_of((4, 2, 8, 1))
    second = replaced(
        first,
        role=DECODE,
        max_running_requests=running,
        chunk_len=max(first.chunk_len, running),
        asynchronous=draw.one_of((False, True)),
        prefix_caching=first.prefix_caching if first.states.is_on else draw.one_of((True, True, False)),
        recomputes_loads=draw.one_of((True, False)),
    )
    if first.state_mode != ALL and draw.one_of((False, False, True)):
        second = with_drafts(draw, second, has=has)
    if has("pushes"):
        pushes = drawn(draw, Pairing, "push")
        first, second = replaced(first, **pushes), replaced(second, **pushes)
    return with_blocks(draw, first), with_blocks(draw, second)


def with_rarer(draw: Draw, config: VllmConfig, *, has: Callable[[str], bool]) -> VllmConfig:
    """The configuration; a third has one of the rarer settings, if it fits."""
    half, is_aligned, has_drafts = config.block_size // 2, config.state_mode == ALIGN, config.drafts.is_on
    settings: dict[str, Any] = {}
    match draw.one_of(RARER):
        case "limit" if not is_aligned:
            settings = {"long_prefill_token_threshold": draw.one_of((2, 4, 8))}
        case "small blocks" if half and config.windows and not config.states.is_on:
            settings = {"window_block_sizes": (half,) * len(config.windows), "kv_events": False}
        case "inside" if half and is_aligned and has("match_unit") and not (config.store.is_on or config.offload.is_on):
            settings = {"prefix_match_unit": half, "kv_events": False}
        case "wide states" if half and is_aligned and has(WIDE_STATES) and not has_drafts:
            settings = {"chunk_len": max(config.max_running_requests, half)}
        case "drafts in flight" if has_drafts and config.states.is_on:
            settings = {"asynchronous": True}
    large = replaced(config, **settings, num_blocks=1 << 20)
    return replaced(large, num_blocks=max(config.num_blocks, least_blocks(large)))


def with_blocks(draw: Draw, config: VllmConfig) -> VllmConfig:
    """The configuration with a small pool."""
    spare = draw.one_of((0, 1, 2, 4, 8, 16, 40))
    return replaced(config, num_blocks=least_blocks(config) + spare)
