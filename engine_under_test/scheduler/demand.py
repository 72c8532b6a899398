"""What a request needs of every pool, computed once; firm what it takes now, estimated what may come."""

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
    """Pages by pool: `firm` will be taken in this step, `total` adds what is estimated to follow."""

    firm: Need
    total: Need


@dataclass(frozen=True, slots=True)
class Extent:
    """A request's next stretch: computes [start, end) of `input_len` tokens, then up to `new_len` more.

    `start` is on a page boundary, or inside a page that the request has already.  Who decodes has
    room for `lookahead` tokens beyond the next.
    """

    start: int
    end: int
    input_len: int
    new_len: int
    lookahead: int = 0


def pages_between(start: int, end: int, page_size: int) -> int:
    """New pages for [start, end) where the page that `start` lies in is there already."""
    return num_pages(end, page_size) - num_pages(start, page_size)


def demand_of(extent: Extent, pools: Sequence[PoolSpec], *, page_size: int, ratio: float) -> Demand:
    """The demand of one stretch; `ratio` scales the output tokens that are still to come.

    Firm are the exact pages of the stretch, in every pool.  A pool that keeps the whole prefix must
    also take the rest of the input and the estimated output; a windowed one never more than a
    chunk, a window and a page (semantics of sglang's estimate_swa_kv_tokens, 0.5.17).
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
    """What a running request has: KV of `launched_len` tokens, be it in flight, room for `allocated_len`, live
    windowed pages of its own from `windowed_from` on."""

    launched_len: int
    allocated_len: int
    windowed_from: int


def growth_of(held: Held, new_len: int, pools: Sequence[PoolSpec], *, page_size: int, lookahead: int) -> Demand:
    """The demand of a request that runs: firm its next token and `lookahead` more, estimated up to `new_len` of them.

    In a windowed pool it grows to its window, a page and the lookahead, and gives back as much as it takes from
    then on.
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
    """Pages that the next token and `lookahead` more take from each pool."""
    return max(0, pages_between(allocated_len, launched_len + 1 + lookahead, page_size))


def windowed_demand_len(extent: Extent, window: int, page_size: int) -> int:
    """Tokens of a windowed pool that a request may come to hold beyond what it has.

    Chunk and window that are held already are outside of what is available, so only the next
    chunk and the head-room of decoding must fit; a whole window for a short resume would livelock
    a small pool (sglang issue 32379).
    """
    seen = lookback(window)
    rest = extent.input_len - extent.start
    window_len = min(rest + extent.new_len, seen) + align_up(extent.lookahead, page_size)
    return max(extent.end - extent.start - seen, 0) + window_len + page_size


def longest_chunk(extent: Extent, capacity: int, window: int, page_size: int) -> int:
    """The most tokens of a stretch whose windowed demand `capacity` pages could ever meet; a page at least.

    The inverse of windowed_demand_len, beside the window that a match has locked.  A demand above the
    capacity would wait for ever (sglang issue 31205).
    """
    seen = lookback(window)
    free = capacity - num_pages(min(extent.start, seen), page_size)
    window_len = min(extent.input_len - extent.start + extent.new_len, seen) + align_up(extent.lookahead, page_size)
    head_room = window_len + page_size
    return max(free * page_size - head_room + seen, page_size)


def fitting_end(start: int, input_len: int, *, most: int, page_size: int) -> int:
    """Where a chunk of at most `most` tokens ends: with the input, else on a page boundary if one is passed."""
    end = min(input_len, start + most)
    aligned = align_down(end, page_size)
    return aligned if end < input_len and aligned > start else end


def chunk_room(available: int, *, slack: int, page_size: int, reserve: int) -> int:
    """Tokens that fit into `available` pages and the `slack` of a begun page, less `reserve` pages."""
    return available * page_size + slack - reserve * page_size


class Book:
    """What is promised while one batch is planned: a firm reservation counts against free and evictable pages.

    No page is taken before the book is closed, so nothing that was promised is counted twice.
    A lock makes evictable pages protected, so it shows here by itself; `estimated` holds what those
    who run, or were admitted before, are expected to grow by.  `budget` tokens may still be
    prefilled; `ratio` scales the output tokens that are still to come.
    """

    def __init__(self, ledgers: Sequence[Ledger], cache: PrefixCache, *, budget: int, ratio: float) -> None:
        self._ledgers = {ledger.name: ledger for ledger in ledgers}
        self._cache = cache
        self.budget = budget
        self.ratio = ratio
        self.reserved = {ledger.name: 0 for ledger in ledgers}
        self.estimated = {ledger.name: 0 for ledger in ledgers}

    def room(self, pool: str) -> int:
        """Pages of `pool` that nobody was promised; below zero when what runs is short already."""
        return self._ledgers[pool].num_free + self._cache.evictable(pool) - self.reserved[pool]

    def fits(self, need: Need, *, besides: Need) -> bool:
        """Can `need` be promised, with `besides` locked for it and what runs growing as estimated?"""
        return not self.lacks(need, besides=besides)

    def reserve(self, demand: Demand) -> None:
        """Promise the firm part; what is estimated beyond it counts for whoever asks next."""
        for pool, count in demand.firm.items():
            self.reserved[pool] += count
            self.estimated[pool] += demand.total[pool] - count

    def lacks(self, need: Need, *, besides: Need) -> Need:
        """By pool, the pages that are missing for `fits` to hold."""
        short = {pool: count + besides[pool] + self.estimated[pool] - self.room(pool) for pool, count in need.items()}
        return {pool: count for pool, count in short.items() if count > 0}
