"""Predicts the next tokens of the fake model."""

from collections.abc import Sequence

from engine_under_test.ports import Wanted
from engine_under_test.units import common_len
from invariants.reference import Expectation


class Oracle:
    """Continues the tokens of a request as the reference does, and caches the continuation."""

    def __init__(self, windows: Sequence[int | None], vocabulary: int) -> None:
        self._windows = windows
        self._vocabulary = vocabulary
        self._known: dict[int, Expectation] = {}

    def __call__(self, wanted: Wanted) -> list[int]:
        """The next `most` tokens."""
        known, tokens = self._known.get(wanted.request_id), list(wanted.tokens)
        if known is None:
            known = self._known[wanted.request_id] = Expectation(wanted.namespace, len(tokens), list(tokens))
        elif known.tokens[: len(tokens)] != tokens:  # tokens that the model did not sample are not cached
            same = common_len(known.tokens, tokens)
            tags, sums = known.tags[:same], known.sums[: same + 1]
            known = Expectation(wanted.namespace, len(tokens), list(tokens), tags=tags, sums=sums)
        while len(known.tokens) < len(tokens) + wanted.most:
            position = len(known.tokens)
            known.extend([known.next_token(position, windows=self._windows, vocabulary=self._vocabulary)])
        return known.tokens[len(tokens) : len(tokens) + wanted.most]

    def forget(self, request_id: int) -> None:
        self._known.pop(request_id, None)
