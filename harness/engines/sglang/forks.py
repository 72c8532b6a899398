"""Requests with several sequences, as TokenizerManager._handle_batch_request sends them.

First the prompt alone, which puts it into the cache; when that has been answered, a request for each sequence.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from swarden.harness.core.port import Submission
from swarden.harness.engines.sglang.requests import SPARE_TOKENS, SglangRequests
from swarden.invariants.events import FinishReason


class Fork(NamedTuple):
    """The sequences that follow a prompt, by their numbers, and the submission that each of them repeats."""

    numbers: list[int]
    submission: Submission


class SglangForks:
    """The sequences whose prompt is not cached yet, by the number of the request with the prompt alone."""

    def __init__(self, requests: SglangRequests) -> None:
        self._requests = requests
        self._waiting: dict[int, Fork] = {}

    def submit(self, submission: Submission) -> tuple[int, Any]:
        """The number of the first sequence, and the release's object for the prompt alone; None if it is too long."""
        requests = self._requests
        numbers = [requests.next_id() for _ in range(submission.sequences)]
        if len(submission.tokens) >= requests.max_len - SPARE_TOKENS:
            for number in numbers:
                requests.reject(number, submission, "too long")
            return numbers[0], None
        alone = requests.next_id()
        req = requests.sent(alone, submission._replace(max_new_tokens=0))
        requests.live[alone].is_hidden = True
        self._waiting[alone] = Fork(numbers, submission)
        return numbers[0], req

    def due(self) -> Iterator[tuple[int, Submission]]:
        """The sequences whose prompt has been answered.  Those of a prompt that the release aborts are refused."""
        self._requests.report_changes()
        for alone, (numbers, submission) in list(self._waiting.items()):
            reason = self._requests.live[alone].finish_reason
            if reason is not None:
                del self._waiting[alone]
                if reason in (FinishReason.LENGTH, FinishReason.STOP):
                    yield from [(number, submission) for number in numbers]
                    continue
                for number in numbers:
                    self._requests.drop(number, FinishReason.REJECTED if reason == FinishReason.ABORT else reason)

    def abort_all(self) -> None:
        """End all sequences that wait."""
        for number in [number for fork in self._waiting.values() for number in fork.numbers]:
            self.abort(number)

    def abort(self, number: int) -> int | None:
        """End a sequence that waits; returns the number of the request with the prompt if that was the last one."""
        for alone, fork in self._waiting.items():
            if number in fork.numbers:
                fork.numbers.remove(number)
                self._requests.drop(number, FinishReason.ABORT)
                return None if fork.numbers else alone
        return None
