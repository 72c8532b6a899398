"""The requests of clients that have not ended; a request with several sequences has a number for each."""

from collections.abc import Sequence


class LiveRequests:
    """The live sequences in order of arrival, each with the most tokens that it can have."""

    def __init__(self) -> None:
        self.most_tokens: dict[int, int] = {}
        self._siblings: dict[int, range] = {}
        self._left: list[int] = []

    def __bool__(self) -> bool:
        return bool(self.most_tokens)

    def add(self, sequences: range, most_tokens: int) -> None:
        self.most_tokens.update(dict.fromkeys(sequences, most_tokens))
        if len(sequences) > 1:
            self._siblings.update(dict.fromkeys(sequences, sequences))

    def end(self, request: int) -> None:
        del self.most_tokens[request]
        self._siblings.pop(request, None)

    def of_client(self, ordinal: int) -> Sequence[int]:
        """All live sequences of the request that has the sequence at `ordinal`, modulo the number of sequences."""
        chosen = list(self.most_tokens)[ordinal % len(self.most_tokens)]
        return [one for one in self._siblings.get(chosen, (chosen,)) if one in self.most_tokens]

    def leave(self, request: int) -> None:
        """The client of this sequence has its answer and is gone; `left` returns the request's other sequences once."""
        gone = self._siblings.get(request, ())
        self._left += [one for one in gone if one != request and one not in self._left]
        for one in gone:
            self._siblings.pop(one, None)

    def left(self) -> Sequence[int]:
        """The live sequences that have lost their client since the last call; the next step aborts them first."""
        left, self._left = [one for one in self._left if one in self.most_tokens], []
        return left
