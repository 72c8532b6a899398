"""What a stretch of a request needs of each pool, as a naive planner counts it: page by page, in pages of one size.

`rest_len` output tokens may still come; admission counts on `foreseen` of them.
"""

from collections.abc import Sequence
from typing import NamedTuple

from invariants.view import ComponentView
from invariants.windows import lookback

Pages = dict[str, int]  # by pool


class Need(NamedTuple):
    """Pages that are taken at once, and those with what may follow."""

    firm: Pages
    demand: Pages


class Ask(NamedTuple):
    """A request that is to compute its input from `start` on; whoever decodes has room for `lookahead` tokens more."""

    start: int
    input_len: int
    rest_len: int
    foreseen: int
    lookahead: int


class Grower(NamedTuple):
    """Who runs: KV of `launched_len` tokens, room for `allocated_len`, windowed pages from `kept_from` on."""

    launched_len: int
    allocated_len: int
    kept_from: int
    foreseen: int
    lookahead: int


class Pager(NamedTuple):
    """Counts in pages of `page_size` tokens, for these components."""

    page_size: int
    components: Sequence[ComponentView]

    def up(self, length: int) -> int:
        """Pages for `length` tokens."""
        return (length + self.page_size - 1) // self.page_size

    def new(self, start: int, end: int) -> int:
        """Pages for [start, end) beside those that [0, start) has."""
        return self.up(end) - self.up(start)

    def of_stretch(self, ask: Ask, end: int) -> Need:
        """[start, end) at once; what may follow is the whole input and its output, or a chunk, a window and a page.

        The last token is sampled and never computed.
        """
        now, need = self.new(ask.start, end), Need({}, {})
        for pool, window, _ in self.components:
            if window is None:
                longest = ask.input_len + ask.lookahead + (ask.foreseen - 1 if ask.foreseen else 0)
                later = self.new(ask.start, longest)
            else:
                beyond = end - ask.start - lookback(window)
                later = self.up((beyond if beyond > 0 else 0) + self.held_in(window, ask))
            need.firm[pool], need.demand[pool] = now, later if later > now else now
        return need

    def held_in(self, window: int, ask: Ask) -> int:
        """Tokens that a window holds of a request once it decodes, the page it begins and its lookahead."""
        seen = lookback(window)
        to_come = ask.input_len - ask.start + ask.rest_len
        return (to_come if to_come < seen else seen) + self.page_size * (1 + self.up(ask.lookahead))

    def longest_at_once(self, ask: Ask, capacities: Pages) -> int:
        """The most tokens that the windowed pools could ever take of a request at once; a page at least."""
        lengths = []
        for pool, window, _ in self.components:
            if window is not None:
                locked = self.up(min(ask.start, lookback(window)))
                room = (capacities[pool] - locked) * self.page_size
                lengths.append(max(self.page_size, room + lookback(window) - self.held_in(window, ask)))
        return min([ask.input_len - ask.start, *lengths])

    def of_growth(self, grower: Grower) -> Need:
        """A token more and its lookahead at once; what may follow is what is foreseen, within the window."""
        page_size, launched, allocated = self.page_size, grower.launched_len, grower.allocated_len
        now = max(0, self.new(allocated, launched + 1 + grower.lookahead))
        need = Need({}, {})
        for pool, window, _ in self.components:
            end = launched + grower.foreseen + grower.lookahead
            if window is not None:
                filled = grower.kept_from + lookback(window) + page_size * (1 + self.up(grower.lookahead))
                end = min(end, max(filled, allocated))
            need.firm[pool], need.demand[pool] = now, max(now, self.new(allocated, end))
        return need

    def cut(self, start: int, input_len: int, most: int) -> int:
        """Where a stretch of at most `most` tokens ends: with the input, or where its last whole page does, if any."""
        if start + most >= input_len:
            return input_len
        last_border = (start + most) // self.page_size * self.page_size
        return last_border if last_border > start else start + most
