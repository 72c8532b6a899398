"""Prompt lookup: a draft repeats the tokens that followed the last occurrence of the newest tokens."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from swarden.engine_under_test.ports import Wanted

LONGEST = 3  # tokens of an n-gram; a longer match is more likely right
SHORTEST = 1


@dataclass(slots=True)
class Index:
    """The position behind the last occurrence of each n-gram of `SHORTEST` to `LONGEST` tokens.

    The index covers the first `num_read` tokens.
    """

    num_read: int = 0
    behind: dict[tuple[int, ...], int] = field(default_factory=dict)

    def read(self, tokens: Sequence[int]) -> None:
        """Index the new tokens; costs O(new tokens)."""
        for position in range(self.num_read, len(tokens)):
            for length in range(SHORTEST, min(LONGEST, position) + 1):
                self.behind[tuple(tokens[position - length : position])] = position
        self.num_read = len(tokens)

    def find_continuation(self, tokens: Sequence[int]) -> int | None:
        """The position behind an earlier occurrence of the newest tokens; the longest n-gram is tried first."""
        for length in range(LONGEST, SHORTEST - 1, -1):
            position = self.behind.get(tuple(tokens[-length:]))
            if position is not None:
                return position
        return None


class NgramProposer:
    """Drafts from a request's own tokens, without a model; a continuation that is too short is repeated.

    Source: prompt lookup decoding, called n-gram speculation in serving engines.
    """

    def __init__(self) -> None:
        self._indices: dict[int, Index] = {}

    def propose(self, wanted: Sequence[Wanted]) -> list[list[int]]:
        return [self._draft(one) for one in wanted]

    def forget(self, request_id: int) -> None:
        self._indices.pop(request_id, None)

    def _draft(self, wanted: Wanted) -> list[int]:
        index = self._indices.setdefault(wanted.request_id, Index())
        index.read(wanted.tokens)
        position = index.find_continuation(wanted.tokens)
        if position is None:
            return []
        known = wanted.tokens[position : position + wanted.most]
        return [known[offset % len(known)] for offset in range(wanted.most)]
