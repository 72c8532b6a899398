"""Draft tokens of which the op-log sets how many are right."""

from collections.abc import Sequence

from swarden.harness.kit.tags import VOCABULARY
from swarden.invariants.reference import Expectation


class DraftScript:
    """The number of right drafts of each proposal: a sequence that begins again after its end.  A `DraftPort`."""

    def __init__(self, lengths: Sequence[int] = ()) -> None:
        self.accept(lengths)

    def accept(self, lengths: Sequence[int]) -> None:
        """Set the sequence, from its first number on; () for no drafts."""
        self._lengths, self._turn = lengths, 0

    def next(self) -> int | None:
        """The number for the next proposal; None if there are no drafts."""
        if not self._lengths:
            return None
        self._turn += 1
        return self._lengths[(self._turn - 1) % len(self._lengths)]


def drafts_after(
    tokens: Sequence[int], *, namespace: int, count: int, right: int, windows: Sequence[int | None]
) -> list[int]:
    """`count` drafts after these tokens: the first `right` are the model's tokens, all others are wrong."""
    return drafts_of(Expectation(namespace, 0, list(tokens)), count=count, right=right, windows=windows)


def drafts_of(expected: Expectation, *, count: int, right: int, windows: Sequence[int | None]) -> list[int]:
    """As `drafts_after`; the drafts are appended to the expected tokens.

    Of the wrong ones, a grammar refuses the first, the third and so on, until it ends.
    """
    for index in range(count):
        token = expected.next_token(len(expected.tokens), windows=windows, vocabulary=VOCABULARY)
        step = 1 + (index - right) % 2 if expected.grammar else 1
        expected.extend([token if index < right else (token + step) % VOCABULARY])
    return expected.tokens[-count:]
