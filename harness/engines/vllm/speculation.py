"""The proposer of draft tokens: the op-log says how many of them are right."""

from collections.abc import Sequence

from harness.engines.vllm.config import VOCABULARY
from invariants.reference import Expectation


class VllmProposer:
    """A chain of `count` drafts after each output, of which the first ones are the model's own tokens."""

    def __init__(self, count: int, windows: Sequence[int | None]) -> None:
        self._count, self._windows = count, windows
        self._lengths: Sequence[int] = (count, 0, 1)
        self._turn = 0

    def accept(self, lengths: Sequence[int]) -> None:
        """As DraftPort."""
        self._lengths, self._turn = lengths, 0

    def drafts(self, namespace: int, tokens: Sequence[int]) -> list[int]:
        """The drafts after these tokens; none if drafts are disabled."""
        if not self._lengths:
            return []
        right = self._lengths[self._turn % len(self._lengths)]
        self._turn += 1
        expected = Expectation(namespace, 0, list(tokens))
        for index in range(self._count):
            token = expected.next_token(len(expected.tokens), windows=self._windows, vocabulary=VOCABULARY)
            expected.extend([token if index < right else (token + 1) % VOCABULARY])
        return expected.tokens[len(tokens) :]
