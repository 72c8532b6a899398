"""The requests of clients: the release's own states, and the outputs that the clients have not got yet."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from swarden.harness.core.port import Submission
from swarden.harness.engines.transformers.core import CHILD, Core, number_of
from swarden.harness.kit.clients import ClientRequest, Clients
from swarden.harness.kit.tags import with_namespace
from swarden.invariants.events import FinishReason
from swarden.invariants.kinds import Place
from swarden.invariants.view import RequestView


@dataclass
class TransformersRequest(ClientRequest):
    """A sequence that has not ended, of the request with the number `first`."""

    first: int = 0

    @property
    def rid(self) -> str:
        """The id of this sequence in the release."""
        return f"{self.first}{CHILD}{self.id - self.first - 1}" if self.id > self.first else str(self.id)


class TransformersRequests(Clients[TransformersRequest]):
    """The unfinished requests, and the outputs of the step so far; rejects requests of more than `longest` tokens."""

    def __init__(self, core: Core, longest: int, notice: Callable[[NamedTuple], None]) -> None:
        super().__init__(notice)
        self._core, self._longest = core, longest

    def submit(self, submission: Submission) -> int:
        """Queue a request; returns its number, behind which its further sequences have theirs."""
        numbers = [self.next_id() for _ in range(submission.sequences)]
        tokens = with_namespace(submission.tokens, submission.namespace)
        if tokens is None or len(tokens) + submission.max_new_tokens > self._longest:
            for number in numbers:
                self.reject(number, submission)
            return numbers[0]
        for number in numbers:
            self.add(TransformersRequest.of(number, submission)).first = numbers[0]
        self._core.manager.num_return_sequences = submission.sequences  # here, each request has its own number
        self._core.manager.add_request(
            tokens,
            request_id=str(numbers[0]),
            max_new_tokens=submission.max_new_tokens,
            streaming=True,
            eos_token_id=list(submission.stop),
        )
        return numbers[0]

    def num_outputs(self, state: Any) -> int:
        """The outputs of a request; after a soft reset they are in what the release takes for its prompt."""
        prompt_len = state._true_initial_tokens or len(state.initial_tokens)
        return len(state.initial_tokens) - prompt_len + len(state.generated_tokens)

    def take(self, output: Any) -> None:
        """An output of the release for one request; those for a request that its client aborted are dropped."""
        request = self.live.get(number_of(output.request_id))
        if request is None:
            return
        new = request.new_of(output.generated_tokens)
        if output.is_finished():
            is_stopped = bool(output.generated_tokens) and output.generated_tokens[-1] in request.stop
            reason = FinishReason.STOP if is_stopped else FinishReason.LENGTH
            self.finish(request, FinishReason.OUT_OF_MEMORY if output.error else reason)
        self.answer(request, new)

    def abort(self, number: int) -> None:
        """The release has dropped a request, because its client asked for it."""
        if (request := self.live.get(number)) is not None:
            self.finish(request, FinishReason.ABORT)
            self.answer(request, ())

    def views(self) -> Iterator[RequestView]:
        states = self._core.states
        for request in self.live.values():
            state = states.get(request.id)
            yield request.view(self._place(request, state), None if state is None else self.num_outputs(state))

    def _place(self, request: TransformersRequest, state: Any) -> Place:
        """A further sequence waits in its request until that is forked."""
        if state is None:
            first = self._core.states.get(request.first)
            is_waiting = self._core.manager.input_queue.qsize() or (first is not None and first.num_children)
            return Place.WAITING if is_waiting else Place.LOST
        if state.request_id in self._core.scheduler.waiting_requests:
            return Place.SWAPPED if state.is_cpu_offloaded else Place.WAITING
        return Place.CHUNKED if state.status.name == "PREFILLING" else Place.RUNNING
