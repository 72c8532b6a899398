"""A proposer that guesses as well as it is told."""

from collections.abc import Callable, Sequence
from itertools import cycle

from engine_under_test.ports import Wanted


class ScriptedProposer:
    """Of one guess after the other so many tokens are right as `accept` was told, over and over; the next one is wrong.

    Behind it stands what the model would say there, which would be right if that one were.  `truth` says what the model
    will say.  Before `accept` was told anything it guesses nothing.
    """

    def __init__(self, truth: Callable[[Wanted], Sequence[int]], forget: Callable[[int], None]) -> None:
        self._truth = truth
        self._lengths = cycle([0])
        self._is_guessing = False
        self.forget = forget

    def accept(self, lengths: Sequence[int]) -> None:
        """How many tokens of each guess from now on are right; () for no guesses."""
        self._lengths, self._is_guessing = cycle(lengths), bool(lengths)

    def propose(self, wanted: Sequence[Wanted]) -> list[list[int]]:
        return [self._guess(one, next(self._lengths)) if self._is_guessing else [] for one in wanted]

    def _guess(self, wanted: Wanted, length: int) -> list[int]:
        drafts = list(self._truth(wanted))
        if length < len(drafts):
            drafts[length] += 1
            behind = wanted._replace(tokens=[*wanted.tokens, *drafts[: length + 1]], most=wanted.most - length - 1)
            drafts[length + 1 :] = self._truth(behind)
        return drafts
