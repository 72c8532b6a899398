"""What the machines draw: configurations, recipes and small numbers; the boring choice comes first."""

from collections.abc import Sequence

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from engine_under_test.config import EngineConfig
from engine_under_test.units import align_up, lookback
from harness.ops import Recipe

PAGE_SIZES = (4, 1, 2, 16, 64)
WINDOWS = (8, 2, 4, 5, 17, 40)
POOL_TOKENS = (128, 64, 96, 256, 48, 512)
SPARE_SWA_PAGES = (4, 0, 1, 2, 8, 40)
BRANCH_CHOICES = (0, 0, 0, 1, 2)  # mostly the same, so that prompts share long prefixes
KINDS = ("both", "both", "both", "both", "full", "swa")
MAX_CONTEXT_LEN = 384


@st.composite
def configurations(
    draw: DrawFn,
    *,
    page_sizes: Sequence[int] = PAGE_SIZES,
    kinds: Sequence[str] = KINDS,
    sharing: Sequence[bool] = (True, True, True, True, False),
) -> EngineConfig:
    """Small pools, so that rare states are common; windows below, at, above and beside the page size."""
    page_size = draw(st.sampled_from(page_sizes))
    window = draw(st.sampled_from(WINDOWS))
    kind = draw(st.sampled_from(kinds))
    full_pages = max(4, draw(st.sampled_from(POOL_TOKENS)) // page_size) + draw(st.integers(0, 3))
    least = align_up(max(lookback(window), page_size), page_size) // page_size + 2
    swa_pages = least + draw(st.sampled_from(SPARE_SWA_PAGES))
    ratio = draw(st.sampled_from((0.1, 0.01, 0.7, 0.01, 1.0)))
    chunk_len = draw(st.sampled_from((3 * page_size, None, page_size, 3 * page_size + 1, 7)))
    return EngineConfig(
        page_size=page_size,
        full_pages=full_pages if kind != "swa" else 0,
        swa_pages=swa_pages if kind != "full" else 0,
        sliding_window=window if kind != "full" else None,
        max_running_requests=draw(st.sampled_from((4, 2, 1, 8))),
        max_context_len=MAX_CONTEXT_LEN,
        chunk_len=chunk_len,
        waiting_order=draw(st.sampled_from(("fcfs", "lpm"))),
        page_reuse=draw(st.sampled_from(("lifo", "fifo"))),
        prefix_sharing=draw(st.sampled_from(sharing)),
        request_timeout_ms=draw(st.sampled_from((None, 100))),
        window_eviction_interval=draw(st.sampled_from((1, page_size, 2 * page_size))),
        new_token_ratio=ratio,
        new_token_ratio_floor=min(ratio, 0.098),
    )


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


def new_token_counts(*, longest: int = 30) -> SearchStrategy[int]:
    return st.sampled_from((1, 2, 4, 0, 9, longest, longest // 2))


def stop_sets() -> SearchStrategy[tuple[int, ...]]:
    """Mostly none; else a quarter of what the stand-in model can say."""
    return st.sampled_from(((), (), (), tuple(range(0, 64, 4))))
