"""The pages that a naive planner counts for a stretch of a request, by pool, for pools of one page size.

A stretch is the range [start, end) of a request's positions that one pass computes.  `rest_len` is the number of output
tokens that a request may still have, `estimated_len` admission's estimate of it.
"""

from collections.abc import Sequence
from typing import NamedTuple

from swarden.invariants.view import ComponentView
from swarden.invariants.windows import lookback, window_frontier

Pages = dict[str, int]  # by pool
STATE_PAGES = 2  # that the end of a stretch takes for states: the last whole page, and a begun one
UNLIMITED = 1 << 62  # tokens


class Need(NamedTuple):
    """By pool, the `firm` pages that are taken now, and the `demand`, which includes the pages that may follow."""

    firm: Pages
    demand: Pages


class Prefill(NamedTuple):
    """A request whose input is computed from `start` on; each decode has pages for `lookahead` more tokens."""

    start: int
    input_len: int
    rest_len: int
    estimated_len: int
    lookahead: int


class Decode(NamedTuple):
    """A running request: KV of `launched_len` tokens; in each component, pages of [kept_from, allocated_len)."""

    launched_len: int
    allocated_len: int
    kept_from: Sequence[int]
    estimated_len: int
    lookahead: int


class Pager(NamedTuple):
    """Counts pages of `page_size` tokens for the components; states have checkpoints every `state_interval` tokens."""

    page_size: int
    components: Sequence[ComponentView]
    state_interval: int | None = None

    def up(self, length: int) -> int:
        """Pages for `length` tokens."""
        return (length + self.page_size - 1) // self.page_size

    def new(self, start: int, end: int) -> int:
        """Pages for [start, end) that are not pages of [0, start)."""
        return self.up(end) - self.up(start)

    def of_stretch(self, prefill: Prefill, end: int) -> Need:
        """Firm pages: those of [start, end).  Demand: the whole input, the estimated output and the lookahead.

        In a windowed pool the demand is the longer of the stretch and the window, plus a page and the lookahead.  In a
        pool of states the demand is at most the pages of the stretch plus those of a window, a page and the lookahead.
        The last token is sampled and never computed.
        """
        need = Need({}, {})
        for component in self.components:
            pool, window, now = component.pool, component.window, self.taken(component, prefill.start, end)
            if window is None:
                longest = (
                    prefill.input_len + prefill.lookahead + (prefill.estimated_len - 1 if prefill.estimated_len else 0)
                )
                later = self.new(prefill.start, longest)
            else:
                beyond = end - prefill.start - lookback(window)
                later = self.up((beyond if beyond > 0 else 0) + self.held_in(window, prefill))
                if component.has_states:
                    later = min(later, now + self.up(self.held_in(window, prefill)))
            need.firm[pool], need.demand[pool] = now, later if later > now else now
        return need

    def taken(self, component: ComponentView, start: int, end: int) -> int:
        """Pages that [start, end) takes; of states, only those within the window at `end` and those of checkpoints."""
        if not component.has_states or component.window is None:
            return self.new(start, end)
        kept_from, size = window_frontier(end, component.window, self.page_size), self.page_size
        pages = range(self.up(start) * size, self.up(end) * size, size)
        return sum(page >= kept_from or self._is_checkpoint(page + size) for page in pages)

    def capacity(self, component: ComponentView, pages: int, spare_len: int) -> int:
        """The tokens of the longest stretch that fits into `pages` pages and the `spare_len` tokens of a begun page."""
        dense = pages * self.page_size + spare_len
        if not component.has_states or pages < STATE_PAGES:
            return dense
        return UNLIMITED if self.state_interval is None else max(dense, (pages - STATE_PAGES) * self.state_interval)

    def _is_checkpoint(self, position: int) -> bool:
        return self.state_interval is not None and position % self.state_interval == 0

    def held_in(self, window: int, prefill: Prefill) -> int:
        """The tokens of a decoding request within a window, plus a partly filled page and the lookahead."""
        seen = lookback(window)
        to_come = prefill.input_len - prefill.start + prefill.rest_len
        return (to_come if to_come < seen else seen) + self.page_size * (1 + self.up(prefill.lookahead))

    def longest_at_once(self, prefill: Prefill, capacities: Pages) -> int:
        """The longest stretch, in tokens, for which empty windowed pools have pages; at least a page."""
        lengths = []
        for component in self.components:
            pool, window = component.pool, component.window
            if window is not None:
                locked, held = self.up(min(prefill.start, lookback(window))), self.held_in(window, prefill)
                pages = capacities[pool] - locked
                lengths.append(max(self.page_size, pages * self.page_size + lookback(window) - held))
                if component.has_states:
                    lengths[-1] = max(lengths[-1], self.capacity(component, pages - self.up(held), 0))
        return min([prefill.input_len - prefill.start, *lengths])

    def of_decode(self, decode: Decode) -> Need:
        """Firm pages: those of a token and its lookahead.  Demand: the estimated tokens, within the window."""
        page_size, launched, allocated = self.page_size, decode.launched_len, decode.allocated_len
        now = max(0, self.new(allocated, launched + 1 + decode.lookahead))
        need = Need({}, {})
        for component, kept_from in zip(self.components, decode.kept_from, strict=True):
            pool, window = component.pool, component.window
            end = launched + decode.estimated_len + decode.lookahead
            if window is not None:
                filled = kept_from + lookback(window) + page_size * (1 + self.up(decode.lookahead))
                end = min(end, max(filled, allocated))
            need.firm[pool], need.demand[pool] = now, max(now, self.new(allocated, end))
        return need

    def cut(self, start: int, input_len: int, most: int) -> int:
        """The end of a stretch of at most `most` tokens: the end of the input, or of the last whole page if any."""
        if start + most >= input_len:
            return input_len
        last_border = (start + most) // self.page_size * self.page_size
        return last_border if last_border > start else start + most
