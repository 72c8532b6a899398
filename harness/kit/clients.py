"""The clients of an engine: their unfinished requests, and the answers that they have not got yet."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

import swarden.invariants.events as seen
from swarden.harness.core.port import Streamed, Submission
from swarden.invariants.events import FinishReason


@dataclass
class ClientRequest:
    """A request: `req` is the engine's own object for it.

    `num_streamed` outputs have reached the client.  The `finish_reason` is known when it has been reported.
    """

    id: int
    req: Any
    namespace: int
    num_streamed: int = 0
    finish_reason: FinishReason | None = None

    def new_of(self, outputs: Sequence[int]) -> Sequence[int]:
        """The new tokens of an answer, from all of its outputs so far."""
        new = outputs[self.num_streamed :]
        self.num_streamed += len(new)
        return new


RequestT = TypeVar("RequestT", bound=ClientRequest)


class Clients(Generic[RequestT]):
    """The unfinished requests by id, and the answers since the last call of `streamed`.  Ids count from 1."""

    def __init__(self, notice: Callable[[NamedTuple], None]) -> None:
        self._notice = notice
        self.live: dict[int, RequestT] = {}
        self._answers: list[Streamed] = []
        self._last_id = 0

    def __contains__(self, number: int) -> bool:
        return number in self.live

    def __bool__(self) -> bool:
        """Does a client wait for an answer?"""
        return bool(self.live or self._answers)

    def next_id(self) -> int:
        self._last_id += 1
        return self._last_id

    def add(self, request: RequestT) -> RequestT:
        """Keep a request until its client knows that it has ended."""
        self.live[request.id] = request
        return request

    def reject(self, number: int, submission: Submission, cause: str = "") -> None:
        """Reject a request that the engine never gets; without a `cause` no law judges the rejection."""
        if cause:
            self._notice(seen.Rejected(number, len(submission.tokens), submission.max_new_tokens, cause))
        self.drop(number, FinishReason.REJECTED)

    def drop(self, number: int, reason: FinishReason) -> None:
        """End a request that the engine never gets."""
        self._notice(seen.Finished(number, reason))
        self._answers.append(Streamed(number, (), reason, 0, 0))

    def finish(self, request: RequestT, reason: FinishReason) -> None:
        """Note that a request has ended; its client gets the reason with the next answer."""
        request.finish_reason = reason
        self._notice(seen.Finished(request.id, reason))

    def answer(self, request: RequestT, new: Sequence[int], *, cached_len: int, num_retractions: int) -> None:
        """Send new tokens to the client, and the finish reason of a request that has ended, which is forgotten."""
        if request.finish_reason is not None:
            del self.live[request.id]
        if new or request.finish_reason is not None:
            self._answers.append(Streamed(request.id, tuple(new), request.finish_reason, cached_len, num_retractions))

    def streamed(self) -> Sequence[Streamed]:
        """The answers since the last call."""
        answers, self._answers = self._answers, []
        return answers
