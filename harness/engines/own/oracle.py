"""What the stand-in model will say next, known in advance."""

from collections.abc import Sequence

from engine_under_test.ports import Wanted
from engine_under_test.units import common_len
from invariants.reference import Expectation


class Oracle:
    """Goes on from the tokens of a request as the model does that keeps nothing; it remembers how it went on."""

    def __init__(self, windows: Sequence[int | None], vocabulary: int) -> None:
        self._windows = windows
        self._vocabulary = vocabulary
        self._known: dict[int, Expectation] = {}

    def __call__(self, wanted: Wanted) -> list[int]:
        """The next `most` tokens."""
        known, told = self._known.get(wanted.request_id), list(wanted.tokens)
        if known is None:
            known = self._known[wanted.request_id] = Expectation(wanted.namespace, len(told), list(told))
        elif known.tokens[: len(told)] != told:  # what the model does not say itself; it is not remembered
            same = common_len(known.tokens, told)
            tags, sums = known.tags[:same], known.sums[: same + 1]
            known = Expectation(wanted.namespace, len(told), list(told), tags=tags, sums=sums)
        while len(known.tokens) < len(told) + wanted.most:
            position = len(known.tokens)
            known.extend([known.next_token(position, windows=self._windows, vocabulary=self._vocabulary)])
        return known.tokens[len(told) : len(told) + wanted.most]

    def forget(self, request_id: int) -> None:
        self._known.pop(request_id, None)
