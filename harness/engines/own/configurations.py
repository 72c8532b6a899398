"""Random configurations of our engine; the simplest choice is first, as shrinking prefers it."""

from collections.abc import Sequence
from dataclasses import replace
from math import ceil

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from swarden.engine_under_test.config import HOST_POLICIES, EngineConfig, least_state_pages
from swarden.engine_under_test.units import align_up, lookback, num_pages
from swarden.harness.search.draws import options
from swarden.harness.search.scenes import TIMEOUT_MS

PAGE_SIZES = (4, 1, 2, 16, 4, 2, 64)
WINDOWS = (4, 2, 8, 3, 5, 17, 40)
POOL_TOKENS = (64, 48, 96, 64, 32, 128, 256)
SPARE_SWA_PAGES = (2, 0, 4, 1, 12, 40)
SPARE_STATE_PAGES = (4, 0, 1, 2, 12, 40)
STATE_INTERVALS = (None, 2, 1, 4)  # in pages
MOST_LAUNCHES = 2  # in flight, with overlap
KINDS = ("both", "both", "both", "both", "swa", "swa", "full")
MAX_CONTEXT_LEN = 384
LOOKAHEADS = (0, 0, 1, 2, 5)
LONG_INTERVAL = 48  # tokens; most outputs are shorter
IDLE_SHARES = (1.0, 0.5, 0.1)


@st.composite
def configurations(
    draw: DrawFn,
    *,
    page_sizes: Sequence[int] = PAGE_SIZES,
    kinds: Sequence[str] = KINDS,
    sharing: Sequence[bool] = (True, True, True, False),
    host_ratios: Sequence[float] = (0,),
) -> EngineConfig:
    """Small pools, so that rare states are common. The window is below, at, above or no multiple of the page size."""
    page_size = draw(options(*page_sizes))
    window = draw(options(*WINDOWS))
    kind = draw(options(*kinds))
    full_pages = max(4, draw(options(*POOL_TOKENS)) // page_size) + draw(st.integers(0, 3))
    lookahead_tokens = draw(options(*LOOKAHEADS))
    kept = align_up(max(lookback(window), page_size), page_size) // page_size
    swa_pages = kept + 2 + num_pages(lookahead_tokens, page_size) + draw(options(*SPARE_SWA_PAGES))
    ratio = draw(options(0.1, 0.01, 0.7, 0.01, 1.0))
    chunk_len = draw(options(3 * page_size, None, page_size, 3 * page_size + 1, 7))
    config = EngineConfig(
        page_size=page_size,
        full_pages=full_pages if kind != "swa" else 0,
        swa_pages=swa_pages if kind != "full" else 0,
        sliding_window=window if kind != "full" else None,
        max_running_requests=draw(options(4, 2, 3, 4, 8, 1)),
        max_context_len=MAX_CONTEXT_LEN,
        chunk_len=chunk_len,
        waiting_order=draw(options("fcfs", "lpm")),
        page_reuse=draw(options("lifo", "fifo")),
        prefix_sharing=draw(options(*sharing)),
        overlap=draw(options(False, True, True)),
        mixed_batches=draw(st.booleans()),
        lookahead_tokens=lookahead_tokens,
        preemption_threshold=draw(options(None, 0, 0, 1)),
        max_forward_retries=draw(options(2, 0, 1)),
        request_timeout_ms=draw(options(None, TIMEOUT_MS)),
        window_eviction_interval=draw(options(1, page_size, 2 * page_size, LONG_INTERVAL)),
        new_token_ratio=ratio,
        new_token_ratio_floor=min(ratio, 0.098),
    )
    if tuple(host_ratios) != (0,):
        policy, threshold = draw(options(*HOST_POLICIES)), draw(options(1, 10))
        config = replace(config, host_policy=policy, load_back_threshold=threshold)
    host_ratio = draw(options(*host_ratios))
    return on_host(config, host_ratio) if host_ratio and config.prefix_sharing else config


@st.composite
def with_sessions(draw: DrawFn, configs: SearchStrategy[EngineConfig]) -> EngineConfig:
    """Idle sessions may keep all, half or a tenth of the pages. Most have no timeout and stay until eviction."""
    share, timeout_ms = draw(options(*IDLE_SHARES)), draw(options(None, None, TIMEOUT_MS))
    return replace(draw(configs), idle_session_share=share, session_timeout_ms=timeout_ms)


@st.composite
def with_drafts(draw: DrawFn, configs: SearchStrategy[EngineConfig]) -> EngineConfig:
    """Draft tokens: mostly as many as the lookahead of the configuration allows."""
    config = draw(configs)
    num_free = draw(options(0, 1, config.lookahead_tokens))
    return replace(config, draft_tokens=max(0, config.lookahead_tokens - num_free))


@st.composite
def with_states(draw: DrawFn, configs: SearchStrategy[EngineConfig]) -> EngineConfig:
    """Half of the configurations with a full pool get a pool of states, with few spare pages and slots."""
    config = draw(configs)
    spare, interval = draw(options(*SPARE_STATE_PAGES)), draw(options(*STATE_INTERVALS))
    spare_slots = draw(options(0, 1, 3))
    if not draw(st.booleans()) or not config.full_pages:
        return config
    least = least_state_pages(config.page_size, lookahead_tokens=config.lookahead_tokens)
    return replace(
        config,
        state_pages=least + spare,
        state_slots=max(1 + config.lookahead_tokens, MOST_LAUNCHES) + 1 + spare_slots,
        state_interval=interval and interval * config.page_size,
        host_state_pages=ceil((least + spare) * config.host_full_pages / config.full_pages),
    )


def on_host(config: EngineConfig, ratio: float) -> EngineConfig:
    """The configuration with host pools of `ratio` times the device pages. The swa pool holds at least one window."""
    min_swa_pages = num_pages(lookback(config.sliding_window), config.page_size) if config.sliding_window else 0
    swa_pages = max(min_swa_pages, ceil(config.swa_pages * ratio))
    return replace(
        config,
        host_full_pages=ceil(config.full_pages * ratio),
        host_swa_pages=swa_pages,
        host_state_pages=ceil(config.state_pages * ratio),
    )
