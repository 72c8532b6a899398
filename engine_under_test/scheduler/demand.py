"""The pages that a request needs of every pool: firm for this step, estimated for later steps."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

from engine_under_test.cache.prefix_cache import PrefixCache
from engine_under_test.config import PoolSpec
from engine_under_test.pools.ledger import Ledger
from engine_under_test.pools.paired import Need
from engine_under_test.units import align_down, align_up, lookback, num_pages


@dataclass(frozen=True, slots=True)
class Demand:
    """Pages by pool: `firm` is taken in this step, `total` adds the estimate for later steps."""

    firm: Need
    total: Need


@dataclass(frozen=True, slots=True)
class Extent:
    """A request's next stretch: computes [start, end) of `input_len` tokens, then up to `new_len` more.

    `start` is on a page boundary, or inside a page that the request has already.  A decoding request has pages for
    `lookahead` tokens beyond the next token.
    """

    start: int
    end: int
    input_len: int
    new_len: int
    lookahead: int = 0


def pages_between(start: int, end: int, page_size: int) -> int:
    """New pages for [start, end), if the page around `start` is taken already."""
    return num_pages(end, page_size) - num_pages(start, page_size)


def demand_of(extent: Extent, pools: Sequence[PoolSpec], *, page_size: int, ratio: float) -> Demand:
    """The demand of one stretch; `ratio` scales the output tokens that are still to come.

    The firm part is the exact pages of the stretch, in every pool.  A pool that keeps the whole prefix must also hold
    the rest of the input and the estimated output.  A windowed pool never holds more than a chunk, a window and a page
    (semantics of sglang's estimate_swa_kv_tokens, 0.5.17).
    """
    firm = pages_between(extent.start, extent.end, page_size)
    total = {}
    for pool in pools:
        if pool.window is None:
            computed = max(0, ceil(extent.new_len * ratio) - 1)  # the last token is sampled and never computed
            total_len = extent.input_len + computed + extent.lookahead
            total[pool.name] = max(firm, pages_between(extent.start, total_len, page_size))
        else:
            total[pool.name] = max(firm, num_pages(windowed_demand_len(extent, pool.window, page_size), page_size))
    return Demand({pool.name: firm for pool in pools}, total)


@dataclass(frozen=True, slots=True)
class Held:
    """The KV of a running request: `launched_len` tokens computed or in flight, pages for `allocated_len` tokens, and
    live private windowed pages from `windowed_from` on."""

    launched_len: int
    allocated_len: int
    windowed_from: int


def growth_of(held: Held, new_len: int, pools: Sequence[PoolSpec], *, page_size: int, lookahead: int) -> Demand:
    """The demand of a running request: firm for the next token and `lookahead` more, estimated for `new_len` tokens.

    In a windowed pool the request grows to its window, a page and the lookahead.  From then on it frees as many pages
    as it takes.
    """
    firm = decode_pages(held.launched_len, held.allocated_len, page_size=page_size, lookahead=lookahead)
    total = {}
    for pool in pools:
        end = held.launched_len + new_len + lookahead
        if pool.window is not None:
            most = lookback(pool.window) + page_size + align_up(lookahead, page_size)
            end = min(end, max(held.allocated_len, held.windowed_from + most))
        total[pool.name] = max(firm, pages_between(held.allocated_len, end, page_size))
    return Demand({pool.name: firm for pool in pools}, total)


def decode_pages(launched_len: int, allocated_len: int, *, page_size: int, lookahead: int) -> int:
    """Pages that the next token and `lookahead` more tokens take from each pool."""
    return max(0, pages_between(allocated_len, launched_len + 1 + lookahead, page_size))


def windowed_demand_len(extent: Extent, window: int, page_size: int) -> int:
    """Tokens of a windowed pool that a request may take beyond those it holds.

    Pages that the request holds already are not available pages, so only the next chunk and the decoding headroom must
    fit.  Demanding a whole window for a short resume would livelock a small pool (sglang issue 32379).
    """
    seen = lookback(window)
    rest = extent.input_len - extent.start
    window_len = min(rest + extent.new_len, seen) + align_up(extent.lookahead, page_size)
    return max(extent.end - extent.start - seen, 0) + window_len + page_size


def longest_chunk(extent: Extent, capacity: int, window: int, page_size: int) -> int:
    """The most tokens of a stretch whose windowed demand fits into `capacity` pages; a page at least.

    The inverse of windowed_demand_len, less the window that a match has locked.  A request with a demand above the
    capacity would wait forever (sglang issue 31205).
    """
    seen = lookback(window)
    free = capacity - num_pages(min(extent.start, seen), page_size)
    window_len = min(extent.input_len - extent.start + extent.new_len, seen) + align_up(extent.lookahead, page_size)
    head_room = window_len + page_size
    return max(free * page_size - head_room + seen, page_size)


def fitting_end(start: int, input_len: int, *, most: int, page_size: int) -> int:
    """The end of a chunk of at most `most` tokens: the end of the input, else a page boundary if one is passed."""
    end = min(input_len, start + most)
    aligned = align_down(end, page_size)
    return aligned if end < input_len and aligned > start else end


def chunk_capacity(available: int, *, slack: int, page_size: int, reserve: int) -> int:
    """Tokens that fit into `available` pages and the `slack` of a begun page, without `reserve` pages."""
    return available * page_size + slack - reserve * page_size


class Budget:
    """The budget of one batch while it is planned: each reservation counts against the free and evictable pages.

    No page is taken before the planning ends, so no reserved page is counted twice.  A lock makes evictable pages
    protected, so locks need no reservation.  `estimated` is the expected growth of running and newly admitted
    requests.  `tokens` may still be prefilled; `ratio` scales the output tokens that are still to come.
    """

    def __init__(self, ledgers: Sequence[Ledger], cache: PrefixCache, *, tokens: int, ratio: float) -> None:
        self._ledgers = {ledger.name: ledger for ledger in ledgers}
        self._cache = cache
        self.tokens = tokens
        self.ratio = ratio
        self.reserved = {ledger.name: 0 for ledger in ledgers}
        self.estimated = {ledger.name: 0 for ledger in ledgers}

    def available(self, pool: str) -> int:
        """Pages of `pool` that are not reserved; below zero when running requests lack pages already."""
        return self._ledgers[pool].num_free + self._cache.evictable(pool) - self.reserved[pool]

    def fits(self, need: Need, *, besides: Need) -> bool:
        """Can `need` be reserved, with `besides` locked for it and with the estimated growth of other requests?"""
        return not self.lacks(need, besides=besides)

    def reserve(self, demand: Demand) -> None:
        """Reserve the firm part; the estimate beyond the firm part counts against later requests."""
        for pool, count in demand.firm.items():
            self.reserved[pool] += count
            self.estimated[pool] += demand.total[pool] - count

    def lacks(self, need: Need, *, besides: Need) -> Need:
        """The pages that are missing for `fits`, by pool."""
        short = {
            pool: count + besides[pool] + self.estimated[pool] - self.available(pool) for pool, count in need.items()
        }
        return {pool: count for pool, count in short.items() if count > 0}
