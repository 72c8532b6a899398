"""The requests of clients: the release's own states, and the outputs that the clients have not got yet."""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, NamedTuple

from swarden.harness.core.port import Submission
from swarden.harness.engines.transformers.core import CHILD, Core, number_of
from swarden.harness.engines.transformers.model import TOKEN_SPAN
from swarden.harness.engines.transformers.passes import Entry
from swarden.harness.kit.clients import ClientRequest, Clients
from swarden.invariants.events import Admitted, FinishReason, Retracted
from swarden.invariants.kinds import Place
from swarden.invariants.view import RequestView

MOST_NAMESPACES = 1 << 11  # token ids have 31 bits


def as_sent(submission: Submission) -> list[int]:
    """The tokens of a prompt; the first one has the namespace."""
    return [token + TOKEN_SPAN * submission.namespace * (not place) for place, token in enumerate(submission.tokens)]


@dataclass
class TransformersRequest(ClientRequest):
    """A sequence that has not ended, of the request with the number `first`.

    `run` counts its retractions, and it `has_blocks` since it was admitted.
    """

    first: int = 0
    prompt_len: int = 0
    max_new_tokens: int = 0
    stop: Collection[int] = ()
    run: int = 0
    has_blocks: bool = False
    cached_len: int = 0

    @property
    def rid(self) -> str:
        """The id of this sequence in the release."""
        return f"{self.first}{CHILD}{self.id - self.first - 1}" if self.id > self.first else str(self.id)


class TransformersRequests(Clients[TransformersRequest]):
    """The unfinished requests, and the outputs of the step so far.  A frontend rejects those of more than `longest`."""

    def __init__(self, core: Core, longest: int, notice: Callable[[NamedTuple], None]) -> None:
        super().__init__(notice)
        self._core, self._longest = core, longest

    def submit(self, submission: Submission) -> int:
        """Queue a request; returns its number, behind which its further sequences have theirs."""
        numbers, tokens = [self.next_id() for _ in range(submission.sequences)], submission.tokens
        is_known = all(token < TOKEN_SPAN for token in tokens) and submission.namespace < MOST_NAMESPACES
        if not tokens or not is_known or len(tokens) + submission.max_new_tokens > self._longest:
            for number in numbers:
                self.reject(number, submission)
            return numbers[0]
        for number in numbers:
            request = self.add(TransformersRequest(number, None, submission.namespace, first=numbers[0]))
            request.prompt_len, request.max_new_tokens = len(tokens), submission.max_new_tokens
            request.stop = frozenset(submission.stop)
        self._core.manager.num_return_sequences = submission.sequences  # here, each request has its own number
        self._core.manager.add_request(
            as_sent(submission),
            request_id=str(numbers[0]),
            max_new_tokens=submission.max_new_tokens,
            streaming=True,
            eos_token_id=list(submission.stop),
        )
        return numbers[0]

    def admit(self, number: int, start: int) -> None:
        """A request gets its first blocks, and continues after [0, start)."""
        request = self.live.get(number)
        if request is not None and not request.has_blocks:
            request.has_blocks, request.cached_len = True, start
            self._notice(Admitted(number, start, start, (), ()))

    def num_outputs(self, state: Any) -> int:
        """The outputs of a request; after a soft reset they are in what the release takes for its prompt."""
        prompt_len = state._true_initial_tokens or len(state.initial_tokens)
        return len(state.initial_tokens) - prompt_len + len(state.generated_tokens)

    def retract(self, number: int, num_outputs: int) -> None:
        """A request released its blocks, and waits again."""
        request = self.live.get(number)
        if request is not None and request.has_blocks:
            request.has_blocks = False
            request.run += 1
            self._notice(Retracted(number, num_outputs, ()))

    def counts(self, entry: Entry) -> bool:
        """Will the result of a pass in flight for this entry be used?"""
        request = self.live.get(entry.request)
        return request is not None and request.run == entry.run

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
        self.answer(request, new, cached_len=request.cached_len, num_retractions=request.run)

    def abort(self, number: int) -> None:
        """The release has dropped a request, because its client asked for it."""
        if (request := self.live.get(number)) is not None:
            self.finish(request, FinishReason.ABORT)
            self.answer(request, (), cached_len=request.cached_len, num_retractions=request.run)

    def views(self) -> tuple[RequestView, ...]:
        """The requests in a snapshot, each where the queues of the release have it."""
        states = self._core.states
        return tuple([self._view(request, states.get(request.id)) for request in self.live.values()])

    def _view(self, request: TransformersRequest, state: Any) -> RequestView:
        return RequestView(
            id=request.id,
            place=self._place(request, state),
            namespace=request.namespace,
            prompt_len=request.prompt_len,
            num_outputs=request.num_streamed if state is None else self.num_outputs(state),
            max_new_tokens=request.max_new_tokens,
        )

    def _place(self, request: TransformersRequest, state: Any) -> Place:
        """A further sequence waits in its request until that is forked."""
        if state is None:
            first = self._core.states.get(request.first)
            is_waiting = self._core.manager.input_queue.qsize() or (first is not None and first.num_children)
            return Place.WAITING if is_waiting else Place.LOST
        if state.request_id in self._core.scheduler.waiting_requests:
            return Place.SWAPPED if state.is_cpu_offloaded else Place.WAITING
        return Place.CHUNKED if state.status.name == "PREFILLING" else Place.RUNNING
