"""The scripted proposer: ops set the number of its right draft tokens."""

from collections.abc import Callable, Sequence
from itertools import cycle

from swarden.engine_under_test.ports import Wanted


class ScriptedProposer:
    """Proposes drafts with a set number of right tokens, and then a wrong one.

    The drafts use the lengths of `accept` in turn, and begin again after the last.  The tokens after the wrong one are
    those that the model would give after it.  `truth` gives the tokens of the model.  Without a call of `accept` there
    are no drafts.
    """

    def __init__(self, truth: Callable[[Wanted], Sequence[int]], forget: Callable[[int], None]) -> None:
        self._truth = truth
        self._lengths = cycle([0])
        self._is_active = False
        self.forget = forget

    def accept(self, lengths: Sequence[int]) -> None:
        """Set the number of right tokens of each draft from now on; () for no drafts."""
        self._lengths, self._is_active = cycle(lengths), bool(lengths)

    def propose(self, wanted: Sequence[Wanted]) -> list[list[int]]:
        return [self._draft(one, next(self._lengths)) if self._is_active else [] for one in wanted]

    def _draft(self, wanted: Wanted, length: int) -> list[int]:
        drafts = list(self._truth(wanted))
        if length < len(drafts):
            drafts[length] += 1
            behind = wanted._replace(tokens=[*wanted.tokens, *drafts[: length + 1]], most=wanted.most - length - 1)
            drafts[length + 1 :] = self._truth(behind)
        return drafts
