"""The answers of clients, each compared with that of a model without a cache when it ends."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from swarden.harness.core.port import Streamed, Submission
from swarden.invariants.events import Compared

OF_LOGPROBS = 2e-3  # tolerance, in float32; measured differences are below 1e-5
WithoutCache = Callable[[Sequence[int], Sequence[int]], Any]


class Answer(NamedTuple):
    """What a client has got; `logprobs` are those of the tokens if they were sampled, else empty."""

    prompt: Sequence[int]
    tokens: list[int]
    logprobs: list[float]


class Answers:
    """The answers that have not ended.

    `logprobs_of` returns, for a prompt and an answer, the logarithms of the probabilities before each token of the
    answer, as [token, vocabulary].
    """

    def __init__(self, logprobs_of: WithoutCache) -> None:
        self._logprobs_of = logprobs_of
        self._answers: dict[int, Answer] = {}

    def begin(self, number: int, submission: Submission) -> int:
        """A client waits for the answers to a submission, of which the first has this number; returns it."""
        for sequence in range(number, number + submission.sequences):
            self._answers[sequence] = Answer(submission.tokens, [], [])
        return number

    def add_logprobs(self, number: int, logprobs: Iterable[float]) -> None:
        if number in self._answers:
            self._answers[number].logprobs.extend(logprobs)

    def compared(self, streamed: Iterable[Streamed], launch: int) -> Iterator[Compared]:
        """Take what clients have got, and compare each answer that has ended; `launch` is the last pass."""
        for output in streamed:
            self._answers[output.request_id].tokens.extend(output.token_ids)
            if output.finish_reason is not None and (ended := self._answers.pop(output.request_id)).tokens:
                yield self._judged(launch, output.request_id, ended)

    def _judged(self, launch: int, request: int, answer: Answer) -> Compared:
        """The comparison of the first wrong token, or of the last one.

        A token is the likeliest one, or a sampled one has the log-probability that the client got.
        """
        prompt, tokens, logprobs_sent = answer
        logprobs = self._logprobs_of(prompt, tokens)
        best = logprobs.max(-1)
        for place, token in enumerate(tokens):
            want, difference = None, None
            if logprobs_sent:
                difference = abs(float(logprobs[place, token]) - logprobs_sent[place])
                is_wrong = not difference <= OF_LOGPROBS
            else:
                is_wrong = not best.values[place] - logprobs[place, token] <= OF_LOGPROBS
                want = int(best.indices[place]) if is_wrong else token
            if is_wrong:
                break
        end = len(prompt) + place
        return Compared(launch, request, len(prompt), end, end, difference, OF_LOGPROBS, token, want)
