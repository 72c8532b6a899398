"""Random configurations of our engine; the simplest choice is first, as shrinking prefers it."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import ceil
from typing import Any

from swarden.engine_under_test.config import HOST_POLICIES, EngineConfig, least_state_pages
from swarden.engine_under_test.units import align_up, lookback, num_pages
from swarden.harness.core.target import TIMEOUT_MS, Draw

PAGE_SIZES = (4, 1, 2, 16, 4, 2, 64)
WINDOWS = (4, 2, 8, 3, 5, 17, 40)
POOL_TOKENS = (64, 48, 96, 64, 32, 128, 256)
SPARE_SWA_PAGES = (2, 0, 4, 1, 12, 40)
SPARE_STATE_PAGES = (4, 0, 1, 2, 12, 40)
STATE_INTERVALS = (None, 2, 1, 4)  # in pages
MOST_LAUNCHES = 2  # in flight, with overlap
KINDS = ("both", "both", "both", "both", "swa", "swa", "full")
SHARING = (True, True, True, False)
MAX_CONTEXT_LEN = 384
LOOKAHEADS = (0, 0, 1, 2, 5)
LONG_INTERVAL = 48  # tokens; most outputs are shorter
IDLE_SHARES = (1.0, 0.5, 0.1)
HOST_RATIOS = (0, 0, 2, 0.5)  # host pages per device page; mostly no host
LINK_TIMEOUTS_MS = (40, 15, 200)
RESERVES = (4, 0, 16, 64)  # reserved_decode_tokens
TIMES = (1, 1, 2, 4)  # the factor of the pool sizes of the decode side

# Settings without which an engine rarely reaches the states that a load is for.
OVERBOOKED = {
    "new_token_ratio": 0.01,
    "new_token_ratio_floor": 0.01,
    "max_running_requests": 4,
    "prefix_sharing": True,
    "request_timeout_ms": None,
}
RETURNING = OVERBOOKED | {"max_running_requests": 8}
SETTINGS_FOR: Mapping[str, Sequence[Mapping[str, Any]]] = {
    "rivals": ({"preemption_threshold": 0, "chunk_len": None, "max_running_requests": 4, "request_timeout_ms": None},),
    "overbooked": (OVERBOOKED, OVERBOOKED | {"chunk_len": None}),
    "returning": (RETURNING, RETURNING | {"chunk_len": None}, RETURNING | {"chunk_len": None}),
    "outlasting": (RETURNING | {"chunk_len": 16, "host_policy": "write_back", "overlap": True},),
    "talking": (OVERBOOKED, OVERBOOKED | {"session_timeout_ms": TIMEOUT_MS}),
    "rewinding": ({"prefix_sharing": False, "request_timeout_ms": None, "idle_session_share": 1.0},),
    "impatient": ({"request_timeout_ms": TIMEOUT_MS, "max_running_requests": 2},),
}
ENLARGED = ("rivals", "rewinding")  # loads that need twice as many pages
NEEDS_HOST = ("returning", "outlasting")


def random_config(draw: Draw, load: str) -> EngineConfig:
    """A configuration of one engine for a load."""
    config = with_states(draw, with_drafts(draw, with_sessions(draw, configuration(draw, host_ratios=HOST_RATIOS))))
    return suited(draw, config, load)


def random_pair(draw: Draw, load: str) -> tuple[EngineConfig, EngineConfig]:
    """A prefill and a decode configuration: one model, but separate pools and batch settings."""
    config = with_states(draw, configuration(draw, host_ratios=(0, 0, 2)))
    if load == "longest":
        config = replace(config, max_running_requests=8, request_timeout_ms=None)
    linked = replace(config, link_retry_ms=3, link_timeout_ms=draw.one_of(LINK_TIMEOUTS_MS))
    times = draw.one_of(TIMES)
    decode = replace(
        linked.for_side("decode"),
        full_pages=config.full_pages * times,
        swa_pages=config.swa_pages * draw.one_of((1, times)),
        state_pages=config.state_pages * draw.one_of((1, times)),
        max_running_requests=draw.one_of((4, 2, 8, 1)),
        prefix_sharing=draw.one_of((True, True, False)),
        overlap=draw.one_of((False, True)),
        reserved_decode_tokens=draw.one_of(RESERVES),
    )
    if decode.swa_pages and draw.integer(0, 2) == 2:
        decode = replace(decode, swa_pages=decode.least_swa_pages)
    return linked.for_side("prefill"), with_drafts(draw, decode)


def configuration(
    draw: Draw,
    *,
    page_sizes: Sequence[int] = PAGE_SIZES,
    kinds: Sequence[str] = KINDS,
    sharing: Sequence[bool] = SHARING,
    host_ratios: Sequence[float] = (0,),
) -> EngineConfig:
    """Small pools, so that rare states are common. The window is below, at, above or no multiple of the page size."""
    page_size = draw.one_of(page_sizes)
    window = draw.one_of(WINDOWS)
    kind = draw.one_of(kinds)
    full_pages = max(4, draw.one_of(POOL_TOKENS) // page_size) + draw.integer(0, 3)
    lookahead_tokens = draw.one_of(LOOKAHEADS)
    kept = align_up(max(lookback(window), page_size), page_size) // page_size
    swa_pages = kept + 2 + num_pages(lookahead_tokens, page_size) + draw.one_of(SPARE_SWA_PAGES)
    ratio = draw.one_of((0.1, 0.01, 0.7, 0.01, 1.0))
    config = EngineConfig(
        page_size=page_size,
        full_pages=full_pages if kind != "swa" else 0,
        swa_pages=swa_pages if kind != "full" else 0,
        sliding_window=window if kind != "full" else None,
        max_running_requests=draw.one_of((4, 2, 3, 4, 8, 1)),
        max_context_len=MAX_CONTEXT_LEN,
        chunk_len=draw.one_of((3 * page_size, None, page_size, 3 * page_size + 1, 7)),
        waiting_order=draw.one_of(("fcfs", "lpm")),
        page_reuse=draw.one_of(("lifo", "fifo")),
        prefix_sharing=draw.one_of(sharing),
        overlap=draw.one_of((False, True, True)),
        mixed_batches=draw.one_of((False, True)),
        lookahead_tokens=lookahead_tokens,
        preemption_threshold=draw.one_of((None, 0, 0, 1)),
        max_forward_retries=draw.one_of((2, 0, 1)),
        request_timeout_ms=draw.one_of((None, TIMEOUT_MS)),
        window_eviction_interval=draw.one_of((1, page_size, 2 * page_size, LONG_INTERVAL)),
        new_token_ratio=ratio,
        new_token_ratio_floor=min(ratio, 0.098),
        host_policy=draw.one_of(HOST_POLICIES),
        load_back_threshold=draw.one_of((1, 10)),
    )
    host_ratio = draw.one_of(host_ratios)
    return on_host(config, host_ratio) if host_ratio and config.prefix_sharing else config


def with_sessions(draw: Draw, config: EngineConfig) -> EngineConfig:
    """Idle sessions may keep all, half or a tenth of the pages. Most have no timeout and stay until eviction."""
    return replace(
        config, idle_session_share=draw.one_of(IDLE_SHARES), session_timeout_ms=draw.one_of((None, None, TIMEOUT_MS))
    )


def with_drafts(draw: Draw, config: EngineConfig) -> EngineConfig:
    """Draft tokens: mostly as many as the lookahead of the configuration allows."""
    num_free = draw.one_of((0, 1, config.lookahead_tokens))
    return replace(config, draft_tokens=max(0, config.lookahead_tokens - num_free))


def with_states(draw: Draw, config: EngineConfig) -> EngineConfig:
    """Half of the configurations with a full pool get a pool of states, with few spare pages and slots."""
    if not config.full_pages or not draw.one_of((False, True)):
        return config
    pages = least_state_pages(config.page_size, lookahead_tokens=config.lookahead_tokens)
    pages += draw.one_of(SPARE_STATE_PAGES)
    interval = draw.one_of(STATE_INTERVALS)
    return replace(
        config,
        state_pages=pages,
        state_slots=max(1 + config.lookahead_tokens, MOST_LAUNCHES) + 1 + draw.one_of((0, 1, 3)),
        state_interval=interval and interval * config.page_size,
        host_state_pages=ceil(pages * config.host_full_pages / config.full_pages),
    )


def suited(draw: Draw, config: EngineConfig, load: str) -> EngineConfig:
    """The configuration with the settings and the pool sizes that suit a load."""
    settings = draw.one_of(SETTINGS_FOR.get(load, ({},)))
    if not settings.get("prefix_sharing", True):
        config = replace(config, host_full_pages=0, host_swa_pages=0, host_state_pages=0)
    times = 2 if load in ENLARGED else 1
    config = replace(
        config,
        full_pages=config.full_pages * times,
        swa_pages=config.swa_pages * times,
        state_pages=config.state_pages * times,
        **settings,
    )
    return on_host(config, 2) if load in NEEDS_HOST and not config.host_pools else config


def on_host(config: EngineConfig, ratio: float) -> EngineConfig:
    """The configuration with host pools of `ratio` times the device pages. The swa pool holds at least one window."""
    min_swa_pages = num_pages(lookback(config.sliding_window), config.page_size) if config.sliding_window else 0
    return replace(
        config,
        host_full_pages=ceil(config.full_pages * ratio),
        host_swa_pages=max(min_swa_pages, ceil(config.swa_pages * ratio)),
        host_state_pages=ceil(config.state_pages * ratio),
    )
