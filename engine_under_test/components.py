"""Components: what the layers of one kind read of a prefix, and what follows for the pages of their pool.

                   a token reads             a page may go                    a node without its pages
    FullAttention   every position before it  with the prefix                  is not on the device
    SlidingWindow   the last `window - 1`     when the window has passed it    is a tombstone
    RecurrentState  the state before it       when the state has passed it     is a tombstone

The rest of the engine asks a component, and never which kind it is.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

from swarden.engine_under_test.units import align_down, align_up, lookback, num_pages, pages_between

UNBOUNDED = 1 << 62  # more tokens than any prefix has
STATE_WINDOW = 2  # a token reads the state that the token before it left


@dataclass(frozen=True, slots=True)
class Extent:
    """A request's next stretch: computes [start, end) of `input_len` tokens, then up to `new_len` more."""

    start: int  # on a page boundary, or inside a page that the request has already
    end: int
    input_len: int
    new_len: int
    lookahead: int = 0  # tokens beyond the next one for which a decoding request has pages


class Component(ABC):
    """The KV of the layers of one kind, in a pool of `num_pages` pages of `page_size` tokens.

    At the end of a cached prefix `tail_len` tokens, in whole pages, must be there for a reader; a lock covers these.
    `window` counts the tokens that a position reads, itself included; None: all.
    """

    leaves_tombstones: bool  # can a cached node lose these pages, and keep others?
    chunk_reserve: int  # pages that a chunk leaves free, unless its request is alone
    slots = 0  # states of a page; 0: a page has the KV of each of its tokens
    kept_states = 0  # the newest positions after which a pass stores the state

    def __init__(self, name: str, num_pages: int, page_size: int, window: int | None = None) -> None:
        self.name = name
        self.num_pages = num_pages
        self.page_size = page_size
        self.window = window
        self._reach = UNBOUNDED if window is None else window
        self._seen = lookback(self._reach)
        self.tail_len = tail_len(window=self._reach, page_size=page_size)

    @property
    def has_states(self) -> bool:
        """Are the layers recurrent?  Then only some places of a request, and of a cached prefix, have pages."""
        return self.slots > 0

    @abstractmethod
    def locked_from(self, start: int) -> int:
        """The position from which a lock on the pages of [start, end) covers nodes."""

    @abstractmethod
    def holds(self, count: int) -> bool:
        """Can one request with `count` pages of tokens run in the otherwise empty pool?"""

    @abstractmethod
    def demand(self, extent: Extent, *, ratio: float) -> int:
        """Pages for a stretch and what follows it; `ratio` scales the output tokens that are still to come."""

    @abstractmethod
    def net_growth(self, count: int) -> int:
        """How many more pages a request holds after it has taken `count` pages and freed those that they replace."""

    @abstractmethod
    def lasting_pages(self, start: int, end: int) -> range:
        """The indices of the whole pages of [start, end) that a reader needs after every longer prefix too."""

    def taken(self, first: int, stop: int, *, end: int) -> Sequence[int]:
        """The page indices in [first, stop) at which a request that computes up to `end` takes a page."""
        return range(first, stop)

    def firm(self, extent: Extent) -> int:
        """Pages that the stretch of an extent takes."""
        first, stop = num_pages(extent.start, self.page_size), num_pages(extent.end, self.page_size)
        return len(self.taken(first, stop, end=extent.end))

    def chunk_capacity(self, count: int, *, slack: int) -> int:
        """Tokens of a chunk that fit into `count` pages and the `slack` of a begun page."""
        return count * self.page_size + slack

    def retains(self, length: int, *, written_len: int) -> bool:
        """Can a request continue at `length`, after passes that wrote up to `written_len`, if it has the pages?"""
        return True

    def read_from(self, position: int) -> int:
        """The first position that the token at `position` reads."""
        return max(0, position - self._seen)

    def needed_from(self, position: int) -> int:
        """The start of the first page that the token at `position` reads."""
        return align_down(self.read_from(position), self.page_size)

    def pages_due(self, prefix_len: int, length: int) -> range:
        """The indices of the pages that a request with [0, prefix_len) needs to continue after `length`."""
        start = max(self.needed_from(length), prefix_len)
        return range(start // self.page_size, num_pages(length, self.page_size))

    def frontier(self, position: int) -> int:
        """The position below which the pages of a request may go, before it computes `position`; a page boundary."""
        return window_frontier(position, window=self._reach, page_size=self.page_size)

    def most_kept(self, lookahead: int) -> int:
        """The most tokens whose pages a decoding request keeps: the tokens that it reads, a page, and the lookahead."""
        return self._seen + self.page_size + align_up(lookahead, self.page_size)

    def demand_len(self, extent: Extent) -> int:
        """Tokens that a request may take beyond those it holds: never more than a chunk, a window and a page.

        Pages that the request holds already are not available pages, so only the next chunk and the decoding headroom
        must fit.  Demanding a whole window for a short resume would livelock a small pool (sglang issue 32379;
        semantics of sglang's estimate_swa_kv_tokens, 0.5.17).
        """
        return max(extent.end - extent.start - self._seen, 0) + self._headroom(extent)

    def longest_chunk(self, extent: Extent) -> int:
        """The most tokens of a stretch whose demand_len fits in the pool beside a matched prefix; at least a page.

        A request with a demand above the capacity would wait forever (sglang issue 31205).
        """
        free = self.num_pages - num_pages(min(extent.start, self._seen), self.page_size)
        return max(free * self.page_size - self._headroom(extent) + self._seen, self.page_size)

    def _headroom(self, extent: Extent) -> int:
        """The tokens that a token after the stretch reads, plus the lookahead, plus a page."""
        rest = extent.input_len - extent.start
        read_len = min(rest + extent.new_len, self._seen)
        return read_len + align_up(extent.lookahead, self.page_size) + self.page_size


class FullAttention(Component):
    """Layers that read the whole prefix."""

    leaves_tombstones = False
    chunk_reserve = 0

    def frontier(self, position: int) -> int:
        return 0

    def locked_from(self, start: int) -> int:
        return 0

    def holds(self, count: int) -> bool:
        return count <= self.num_pages

    def demand(self, extent: Extent, *, ratio: float) -> int:
        """Pages for the rest of the input and for the estimated output."""
        computed = max(0, ceil(extent.new_len * ratio) - 1)  # the last token is sampled and never computed
        total_len = extent.input_len + computed + extent.lookahead
        return pages_between(extent.start, total_len, self.page_size)

    def net_growth(self, count: int) -> int:
        return count

    def lasting_pages(self, start: int, end: int) -> range:
        return range(start // self.page_size, end // self.page_size)


class Windowed(Component):
    """Layers that read a window; the configuration makes sure that one request always fits into the pool."""

    leaves_tombstones = True
    chunk_reserve = 1  # sglang pull 23174

    def locked_from(self, start: int) -> int:
        return start

    def holds(self, count: int) -> bool:
        return True

    def demand(self, extent: Extent, *, ratio: float) -> int:
        return num_pages(self.demand_len(extent), self.page_size)

    def net_growth(self, count: int) -> int:
        return min(count, 1)

    def lasting_pages(self, start: int, end: int) -> range:
        return range(0)


class SlidingWindow(Windowed):
    """Layers with a sliding window of attention."""


class RecurrentState(Windowed):
    """Recurrent layers: a page has the states after some of its tokens, and the pages of most tokens are never taken.

    A state is kept like the KV of a window of two tokens: the state after a position stands in the page of that
    position.  A request takes pages for the end of what it computes, from the last page boundary on, and for
    checkpoints every `interval` tokens (None: no checkpoints).

    A pass stores the state at each page boundary that it passes and has a page for, and after each of its last
    `kept_states` positions: after a rejected draft, or a cut, the request continues from one of these states.
    """

    def __init__(self, name: str, num_pages: int, page_size: int, *, slots: int, interval: int | None) -> None:
        super().__init__(name, num_pages, page_size, STATE_WINDOW)
        self.slots = min(slots, page_size)
        self.kept_states = slots - 1
        self._interval = interval

    def demand(self, extent: Extent, *, ratio: float) -> int:
        sparse = self.firm(extent) + num_pages(self._headroom(extent), self.page_size)
        return min(super().demand(extent, ratio=ratio), sparse)

    def taken(self, first: int, stop: int, *, end: int) -> Sequence[int]:
        kept_from = max(first, self.frontier(end) // self.page_size)
        return [*self._checkpoints(first, min(kept_from, stop)), *range(kept_from, stop)]

    def chunk_capacity(self, count: int, *, slack: int) -> int:
        """Tokens of a chunk that fit into `count` pages.

        Two pages hold the last states, and each further page a checkpoint; or each page holds `page_size` tokens.
        """
        dense = count * self.page_size + slack
        if count < 2:
            return dense
        return UNBOUNDED if self._interval is None else max(dense, (count - 2) * self._interval)

    def longest_chunk(self, extent: Extent) -> int:
        locked = num_pages(min(extent.start, self._seen), self.page_size)
        free = self.num_pages - locked - num_pages(self._headroom(extent), self.page_size)
        return max(super().longest_chunk(extent), self.chunk_capacity(free, slack=0))

    def retains(self, length: int, *, written_len: int) -> bool:
        """Is the state before `length` at a page boundary, or was it stored and not overwritten?"""
        return length % self.page_size == 0 or length > written_len - self.kept_states

    def _checkpoints(self, first: int, stop: int) -> Sequence[int]:
        if self._interval is None:
            return ()
        return [index for index in range(first, stop) if (index + 1) * self.page_size % self._interval == 0]


def component_of(name: str, num_pages: int, *, window: int | None, page_size: int) -> Component:
    """The component of a pool of KV with this window; None: its layers read the whole prefix."""
    return (FullAttention if window is None else SlidingWindow)(name, num_pages, page_size, window)


def kept_len(*, window: int, page_size: int) -> int:
    """Tokens before the computed position whose pages are kept, in whole pages; at least one page.

    If a page is larger than the window, the window alone is too little: the next published prefix ends at
    align_down(position), and at least one page before that end must be live (sglang pulls 22470, 29860).
    """
    return align_up(max(lookback(window), page_size), page_size)


def window_frontier(position: int, *, window: int, page_size: int) -> int:
    """Position below which the windowed pages of a request may be freed; a multiple of `page_size`.

    `position` is the next position to be computed; it reads the `window - 1` positions before it.
    """
    return align_down(max(0, position - kept_len(window=window, page_size=page_size)), page_size)


def tail_len(*, window: int, page_size: int) -> int:
    """Tokens at the end of a cached prefix that must be live for it to match, in whole pages."""
    return align_up(lookback(window), page_size)
