"""The clients of an engine: their unfinished requests, and the answers that they have not got yet."""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, Self, TypeVar

import swarden.invariants.events as seen
from swarden.harness.core.port import Streamed, Submission
from swarden.harness.kit.passes import TableEntry
from swarden.invariants.events import FinishReason
from swarden.invariants.view import RequestView


@dataclass
class ClientRequest:
    """A request: `req` is the engine's own object for it.

    `num_streamed` outputs have reached the client.  The `finish_reason` is known when it has been reported.
    `run` counts how often it has stopped running, and it `has_kv` since it was admitted, with `cached_len` tokens.
    """

    id: int
    req: Any
    namespace: int
    num_streamed: int = 0
    finish_reason: FinishReason | None = None
    prompt_len: int = 0
    max_new_tokens: int = 0
    stop: Collection[int] = ()
    run: int = 0
    has_kv: bool = False
    cached_len: int = 0
    num_retractions: int = 0

    @classmethod
    def of(cls, number: int, submission: Submission, req: Any = None) -> Self:
        request = cls(number, req, submission.namespace)
        request.prompt_len, request.max_new_tokens = len(submission.tokens), submission.max_new_tokens
        request.stop = frozenset(submission.stop)
        return request

    def view(self, place: str, num_outputs: int | None = None) -> RequestView:
        """The request in a snapshot; without `num_outputs` it has those that its client got."""
        outputs = self.num_streamed if num_outputs is None else num_outputs
        return RequestView(self.id, place, self.namespace, self.prompt_len, outputs, self.max_new_tokens)

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

    def admit(self, number: int, start: int, *, resumes: bool = False) -> None:
        """A request gets KV, and continues after [0, start); with `resumes` also one that has kept its KV."""
        request = self.live.get(number)
        if request is None or (request.has_kv and not resumes):
            return
        if not request.has_kv:
            request.has_kv, request.cached_len = True, start
        self._notice(seen.Admitted(number, start, start, (), ()))

    def retract(self, number: int, num_outputs: int | None = None) -> None:
        """A request has released its KV, and waits again."""
        request = self.live.get(number)
        if request is not None and request.has_kv:
            request.has_kv = False
            request.run += 1
            request.num_retractions += 1
            outputs = request.num_streamed if num_outputs is None else num_outputs
            self._notice(seen.Retracted(number, outputs, ()))

    def run_of(self, number: int) -> int:
        """The run of a request that begins or goes on now; -1 for a request that has ended."""
        request = self.live.get(number)
        return -1 if request is None else request.run

    def is_used(self, entry: TableEntry) -> bool:
        """Will the result of a pass in flight for this entry be used?"""
        return entry.request in self.live and self.run_of(entry.request) == entry.run

    def answer(self, request: RequestT, new: Sequence[int]) -> None:
        """Send new tokens to the client, and the finish reason of a request that has ended, which is forgotten."""
        reason, counts = request.finish_reason, (request.cached_len, request.num_retractions)
        if reason is not None:
            del self.live[request.id]
        if new or reason is not None:
            self._answers.append(Streamed(request.id, tuple(new), reason, *counts))

    def views(self) -> Iterable[RequestView]:
        """The requests in a snapshot, each where the queues of the engine have it."""
        return ()

    def streamed(self) -> Sequence[Streamed]:
        """The answers since the last call."""
        answers, self._answers = self._answers, []
        return answers
