"""Prompt lookup: what a request said the last time that its newest tokens were said will be said again."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from engine_under_test.ports import Wanted

LONGEST = 3  # tokens that must have been said before, in this order; the longer the likelier right
SHORTEST = 1


@dataclass(slots=True)
class Index:
    """Where each run of `SHORTEST` to `LONGEST` tokens was followed by something, the last time.

    The first `num_read` tokens are in it.
    """

    num_read: int = 0
    behind: dict[tuple[int, ...], int] = field(default_factory=dict)

    def read(self, tokens: Sequence[int]) -> None:
        """Note what is new; costs O(new tokens)."""
        for position in range(self.num_read, len(tokens)):
            for length in range(SHORTEST, min(LONGEST, position) + 1):
                self.behind[tuple(tokens[position - length : position])] = position
        self.num_read = len(tokens)

    def place(self, tokens: Sequence[int]) -> int | None:
        """Behind which position what came last was said before, the longest run of it first."""
        for length in range(LONGEST, SHORTEST - 1, -1):
            place = self.behind.get(tuple(tokens[-length:]))
            if place is not None:
                return place
        return None


class NgramProposer:
    """Guesses from a request's own tokens, without a model; a place near the end is taken to go on as it began.

    Source: prompt lookup decoding, as serving engines have it under the name of n-gram speculation.
    """

    def __init__(self) -> None:
        self._indices: dict[int, Index] = {}

    def propose(self, wanted: Sequence[Wanted]) -> list[list[int]]:
        return [self._guess(one) for one in wanted]

    def forget(self, request_id: int) -> None:
        self._indices.pop(request_id, None)

    def _guess(self, wanted: Wanted) -> list[int]:
        index = self._indices.setdefault(wanted.request_id, Index())
        index.read(wanted.tokens)
        place = index.place(wanted.tokens)
        if place is None:
            return []
        known = wanted.tokens[place : place + wanted.most]
        return [known[offset % len(known)] for offset in range(wanted.most)]
