"""Grammars of answers behind the interface of an engine's backend, and the faults of their compilation."""

from collections.abc import Callable, Sequence
from typing import Any

from swarden.harness.kit.tags import VOCABULARY
from swarden.invariants.grammar import allowed_tokens, has_ended

GRAMMAR = "grammar"  # the option of a request
FAILS, LATE = "grammar.fails", "grammar.late"
FAULTS = {FAILS: "a grammar cannot be compiled", LATE: "a grammar that is compiled takes a step more"}


class ClientGrammar:
    """A grammar of `length` tokens that ignores tokens behind its end, as those of the releases' backends."""

    def __init__(self, length: int, refused: Callable[[Any, int], None]) -> None:
        super().__init__()
        self.length, self._refused = length, refused
        self.accepted: list[int] = []

    @property
    def allowed(self) -> Sequence[int]:
        """The tokens that can come next."""
        return allowed_tokens(self.length, self.accepted, VOCABULARY)

    def accept(self, tokens: Sequence[int]) -> bool:
        """Go on by the tokens that are allowed; whether all are, or the grammar has ended."""
        allowed = self.validate_tokens(tokens)
        self.accepted += allowed
        if is_refused := len(allowed) < len(tokens) and not self.is_terminated():
            self._refused(self, tokens[len(allowed)])
        return not is_refused

    def validate_tokens(self, tokens: Sequence[int]) -> list[int]:
        """The tokens until the first that is not allowed."""
        outputs = list(self.accepted)
        for token in tokens:
            if has_ended(self.length, outputs) or token not in allowed_tokens(self.length, outputs, VOCABULARY):
                break
            outputs.append(token)
        return outputs[len(self.accepted) :]

    def rollback(self, num_tokens: int) -> None:
        self.accepted = self.accepted[: len(self.accepted) - num_tokens]

    def is_terminated(self) -> bool:
        return has_ended(self.length, self.accepted)

    def reset(self) -> None:
        self.accepted.clear()
