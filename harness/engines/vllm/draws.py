"""Random configurations of a vLLM engine core with small pools, alone or as the sides of a pair."""

from collections.abc import Callable
from typing import Any

from swarden.harness.core.target import Draw
from swarden.harness.engines.vllm.config import SETTINGS_FOR, VllmConfig, decode_config, plain_config, with_blocks
from swarden.harness.engines.vllm.connector import LOAD_FAILS
from swarden.harness.engines.vllm.layers import ALIGN, ALL
from swarden.harness.engines.vllm.parts.drafts import with_drafts
from swarden.harness.engines.vllm.parts.grammars import Grammars
from swarden.harness.engines.vllm.parts.kv_events import KvEvents
from swarden.harness.engines.vllm.parts.lmcache import with_lmcache
from swarden.harness.engines.vllm.parts.mooncake import with_mooncake
from swarden.harness.engines.vllm.parts.offload import CHUNKS, with_offloading
from swarden.harness.engines.vllm.parts.pair import DECODE, PREFILL, Pairing
from swarden.harness.engines.vllm.parts.states import WIDE_STATES, with_states
from swarden.harness.engines.vllm.parts.store import with_loads
from swarden.harness.engines.vllm.parts.streaming import Streaming
from swarden.harness.kit.settings import drawn, replaced

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
    if kind == "loads" and has("lmcache") and not config.states.is_on and draw.one_of((False, False, True)):
        config = with_lmcache(draw, config)
    elif kind == "loads":
        config = with_loads(draw, config)
        if config.store.loads_within_a_step and LOAD_FAILS in config.faults:
            config = replaced(config, recomputes_loads=draw.one_of((True, True, False)))
    can_have_store = has("mooncake_store") and (has("failed_requests") or len(config.groups) == 1)
    if kind == "offloading" and can_have_store and not config.states.all_states and draw.one_of((False, False, True)):
        config = with_mooncake(draw, replaced(config, prefix_caching=True))
    elif kind == "offloading" and has("cpu_memory"):
        config = with_offloading(draw, replaced(config, prefix_caching=True), has=has)
    can_have_drafts = (kind == "offloading" or config.states.is_on) and config.state_mode != ALL
    if kind == "drafts" or (can_have_drafts and draw.one_of((False, False, True))):
        config = with_drafts(draw, config, has=has)
    if config.prefix_caching and config.offload.offloader == CHUNKS and not config.tier.is_on:
        config = replaced(config, **drawn(draw, KvEvents))
    cannot_stream = config.store.is_on or config.lmcache.is_on or (config.states.is_on and config.drafts.is_on)
    if has("streaming_input") and not cannot_stream:
        config = replaced(config, **drawn(draw, Streaming))
    if has("grammars"):
        config = replaced(config, **drawn(draw, Grammars))
    return with_rarer(draw, with_blocks(draw, config), has=has)


def pair_configs(draw: Draw, *, has: Callable[[str], bool]) -> tuple[VllmConfig, VllmConfig]:
    """One model, but other pools, batches and schedulers; sometimes the decode side has drafts."""
    roles = drawn(draw, Pairing, "has_both_roles", "local_len")
    first = replaced(plain_config(draw, has=has), sleeps=False, role=PREFILL, **roles)
    if draw.one_of((False, False, True)):
        first = with_states(draw, first, has=has)
    second = replaced(decode_config(draw, first), role=DECODE)
    if first.state_mode != ALL and draw.one_of((False, False, True)):
        second = with_drafts(draw, second, has=has)
    if has("pushes"):
        links = drawn(draw, Pairing, "push")
        if has("mooncake_link") and not links["push"] and (has("failed_requests") or not first.states.is_on):
            links = drawn(draw, Pairing, "mooncake_link")
        first, second = replaced(first, **links), replaced(second, **links)
    return with_blocks(draw, first), with_blocks(draw, second)


def rank_config(draw: Draw, *, has: Callable[[str], bool]) -> VllmConfig:
    """A rank, with which others run."""
    return replaced(with_blocks(draw, plain_config(draw, has=has)), ranks=draw.one_of((2, 2, 2, 3)))


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
    if not settings:
        return config
    large = replaced(config, **settings, num_blocks=1 << 20)
    return replaced(large, num_blocks=max(config.num_blocks, large.least_blocks))
