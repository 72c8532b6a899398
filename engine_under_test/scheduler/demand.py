"""The pages that a request needs of every pool: firm for this step, estimated for later steps."""

from collections.abc import Sequence
from dataclasses import dataclass

from swarden.engine_under_test.cache.prefix_cache import PrefixCache
from swarden.engine_under_test.components import Component, Extent
from swarden.engine_under_test.pools.ledger import Ledger
from swarden.engine_under_test.pools.paired import Need
from swarden.engine_under_test.units import align_down, pages_between


@dataclass(frozen=True, slots=True)
class Demand:
    """Pages by pool: `firm` is taken in this step, `total` adds the estimate for later steps."""

    firm: Need
    total: Need


def demand_of(extent: Extent, pools: Sequence[Component], *, ratio: float) -> Demand:
    """The demand of a stretch: its exact pages per pool, firm, and those of later output tokens, scaled by `ratio`."""
    firm = {pool.name: pool.firm(extent) for pool in pools}
    total = {pool.name: max(firm[pool.name], pool.demand(extent, ratio=ratio)) for pool in pools}
    return Demand(firm, total)


@dataclass(frozen=True, slots=True)
class Held:
    """The KV of a running request: `launched_len` tokens computed or in flight, pages for `allocated_len` tokens, and
    in each pool private pages from the position in `private_from` on."""

    launched_len: int
    allocated_len: int
    private_from: Sequence[int]


def growth_of(held: Held, new_len: int, pools: Sequence[Component], *, page_size: int, lookahead: int) -> Demand:
    """The demand of a running request: firm for the next token and `lookahead` more, estimated for `new_len` tokens."""
    firm = decode_pages(held.launched_len, held.allocated_len, page_size=page_size, lookahead=lookahead)
    total = {}
    for pool, private_from in zip(pools, held.private_from, strict=True):
        most = max(held.allocated_len, private_from + pool.most_kept(lookahead))
        end = min(held.launched_len + new_len + lookahead, most)
        total[pool.name] = max(firm, pages_between(held.allocated_len, end, page_size))
    return Demand(dict.fromkeys(total, firm), total)


def decode_pages(launched_len: int, allocated_len: int, *, page_size: int, lookahead: int) -> int:
    """Pages that the next token and `lookahead` more tokens take from each pool."""
    return max(0, pages_between(allocated_len, launched_len + 1 + lookahead, page_size))


def fitting_end(start: int, input_len: int, *, most: int, page_size: int) -> int:
    """The end of a chunk of at most `most` tokens: the end of the input, else a page boundary if one is passed."""
    end = min(input_len, start + most)
    aligned = align_down(end, page_size)
    return aligned if end < input_len and aligned > start else end


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
