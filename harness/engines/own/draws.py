"""What the machines draw: configurations, recipes and small numbers; the boring choice comes first."""

from collections.abc import Sequence
from dataclasses import replace
from math import ceil

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from engine_under_test.config import HOST_POLICIES, EngineConfig
from engine_under_test.units import align_up, lookback, num_pages
from fakes.catalog import BETWEEN_ENGINES, FAULTS
from harness.core.ops import MAX_STEPS_PER_OP, Accept, Heal, Inject, Op, Recipe, Step

PAGE_SIZES = (4, 1, 2, 16, 4, 2, 64)
WINDOWS = (4, 2, 8, 3, 5, 17, 40)
POOL_TOKENS = (64, 48, 96, 64, 32, 128, 256)
SPARE_SWA_PAGES = (2, 0, 4, 1, 12, 40)
PRESSURE_PAGES = (0, 1, 3, 10)
BRANCH_CHOICES = (0, 0, 0, 1, 2)  # mostly the same, so that prompts share long prefixes
KINDS = ("both", "both", "both", "both", "swa", "swa", "full")
MAX_CONTEXT_LEN = 384
LOOKAHEADS = (0, 0, 1, 2, 5)
TIMEOUT_MS = 100
IDLE_SHARES = (1.0, 0.5, 0.1)
WITHIN_AN_ENGINE = tuple(fault for fault in FAULTS if fault not in BETWEEN_ENGINES)
OUTAGE = 1000  # more crossings than there are in a few steps, so that healing finds something to heal


@st.composite
def configurations(
    draw: DrawFn,
    *,
    page_sizes: Sequence[int] = PAGE_SIZES,
    kinds: Sequence[str] = KINDS,
    sharing: Sequence[bool] = (True, True, True, False),
    host_ratios: Sequence[float] = (0,),
) -> EngineConfig:
    """Small pools, so that rare states are common; windows below, at, above and beside the page size."""
    page_size = draw(st.sampled_from(page_sizes))
    window = draw(st.sampled_from(WINDOWS))
    kind = draw(st.sampled_from(kinds))
    full_pages = max(4, draw(st.sampled_from(POOL_TOKENS)) // page_size) + draw(st.integers(0, 3))
    lookahead_tokens = draw(st.sampled_from(LOOKAHEADS))
    kept = align_up(max(lookback(window), page_size), page_size) // page_size
    swa_pages = kept + 2 + num_pages(lookahead_tokens, page_size) + draw(st.sampled_from(SPARE_SWA_PAGES))
    ratio = draw(st.sampled_from((0.1, 0.01, 0.7, 0.01, 1.0)))
    chunk_len = draw(st.sampled_from((3 * page_size, None, page_size, 3 * page_size + 1, 7)))
    config = EngineConfig(
        page_size=page_size,
        full_pages=full_pages if kind != "swa" else 0,
        swa_pages=swa_pages if kind != "full" else 0,
        sliding_window=window if kind != "full" else None,
        max_running_requests=draw(st.sampled_from((4, 2, 3, 4, 8, 1))),
        max_context_len=MAX_CONTEXT_LEN,
        chunk_len=chunk_len,
        waiting_order=draw(st.sampled_from(("fcfs", "lpm"))),
        page_reuse=draw(st.sampled_from(("lifo", "fifo"))),
        prefix_sharing=draw(st.sampled_from(sharing)),
        overlap=draw(st.sampled_from((False, True, True))),
        mixed_batches=draw(st.booleans()),
        lookahead_tokens=lookahead_tokens,
        preemption_threshold=draw(st.sampled_from((None, 0, 0, 1))),
        max_forward_retries=draw(st.sampled_from((2, 0, 1))),
        request_timeout_ms=draw(st.sampled_from((None, TIMEOUT_MS))),
        window_eviction_interval=draw(st.sampled_from((1, page_size, 2 * page_size))),
        new_token_ratio=ratio,
        new_token_ratio_floor=min(ratio, 0.098),
    )
    if tuple(host_ratios) != (0,):
        policy, threshold = draw(st.sampled_from(HOST_POLICIES)), draw(st.sampled_from((1, 10)))
        config = replace(config, host_policy=policy, load_back_threshold=threshold)
    host_ratio = draw(st.sampled_from(host_ratios))
    return on_host(config, host_ratio) if host_ratio and config.prefix_sharing else config


@st.composite
def with_sessions(draw: DrawFn, configs: SearchStrategy[EngineConfig]) -> EngineConfig:
    """Idle sessions that keep much or little, and mostly for as long as nobody needs the room."""
    share, timeout_ms = draw(st.sampled_from(IDLE_SHARES)), draw(st.sampled_from((None, None, TIMEOUT_MS)))
    return replace(draw(configs), idle_session_share=share, session_timeout_ms=timeout_ms)


@st.composite
def with_drafts(draw: DrawFn, configs: SearchStrategy[EngineConfig]) -> EngineConfig:
    """Where there is room ahead, mostly as many drafts in it."""
    config = draw(configs)
    num_free = draw(st.sampled_from((0, 1, config.lookahead_tokens)))
    return replace(config, draft_tokens=max(0, config.lookahead_tokens - num_free))


def on_host(config: EngineConfig, ratio: float) -> EngineConfig:
    """The configuration with so many times as many pages on the host, and one window at least."""
    least = num_pages(lookback(config.sliding_window), config.page_size) if config.sliding_window else 0
    swa_pages = max(least, ceil(config.swa_pages * ratio))
    return replace(config, host_full_pages=ceil(config.full_pages * ratio), host_swa_pages=swa_pages)


@st.composite
def recipes(draw: DrawFn) -> Recipe:
    """Paths of few choices, with stretches around page and window multiples."""
    continues = draw(st.integers(0, 15))
    return Recipe(
        path=tuple(draw(st.lists(st.sampled_from(BRANCH_CHOICES), min_size=1, max_size=6))),
        stretch=draw(st.sampled_from((4, 1, 3, 5, 8, 16))),
        cut=draw(st.integers(0, 4)),
        continues=continues - 8 if continues >= 8 else None,
    )


def rarely(strategy: SearchStrategy[int]) -> SearchStrategy[int]:
    """0 three times of four."""
    return st.integers(0, 3).flatmap(lambda coin: strategy if coin == 3 else st.just(0))


def ordinals() -> SearchStrategy[int]:
    return st.integers(0, 7)


def step_counts() -> SearchStrategy[int]:
    """Mostly few, so that others arrive while somebody runs."""
    return st.sampled_from((1, 2, 1, 4, MAX_STEPS_PER_OP))


def acceptances() -> SearchStrategy[Accept]:
    """Guesses of which all is right, or nothing, or now more and now less; now and then nobody guesses."""
    lengths = st.lists(st.integers(0, 5), min_size=1, max_size=3).map(tuple)
    return st.one_of(st.sampled_from(((5,), (0,), (5, 0), ())), lengths).map(lambda drawn: Accept(lengths=drawn))


def stop_sets() -> SearchStrategy[tuple[int, ...]]:
    """None mostly, or a quarter or an eighth of what the stand-in model can say."""
    return st.sampled_from(((), tuple(range(0, 64, 4)), (), (), tuple(range(0, 64, 8))))


def fault_sets(faults: Sequence[str] = WITHIN_AN_ENGINE) -> SearchStrategy[tuple[str, ...]]:
    """The first coin of a run: which faults it has; none in a quarter of them."""
    return st.integers(0, 3).flatmap(
        lambda coin: st.lists(st.sampled_from(faults), min_size=1, unique=True).map(tuple) if coin else st.just(())
    )


@st.composite
def troubles(draw: DrawFn, faults: Sequence[str]) -> tuple[Op, ...]:
    """The second coin: a fault that comes true once or a few times, or one that lasts until it is healed.

    A run without faults goes on for a step instead.
    """
    if not faults:
        return (Step(),)
    fault = draw(st.sampled_from(faults))
    skip, count = draw(st.sampled_from((0, 1, 0, 2, 5))), draw(st.sampled_from((1, 1, 2, 3, OUTAGE)))
    inject = Inject(fault=fault, skip=skip, count=count)
    if count < OUTAGE:
        return (inject,)
    healed = draw(st.sampled_from((fault, None)))
    return inject, Step(count=draw(st.integers(1, 4))), Heal(fault=healed)
