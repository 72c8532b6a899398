"""The interface of a level of the check of a running server."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from harness.engines.sglang.requests import Request
from harness.strict.evidence import Evidence
from invariants.violation import Violation


class Check:
    """A level. It gets the events since the call before, and returns the violations that it finds."""

    def added(self, request: Request) -> None:
        """A request enters the queue for the first time."""

    def launched(self, batch: Any) -> Sequence[NamedTuple]:
        """A pass is about to be launched. Returns its events."""
        return ()

    def completed(self) -> Sequence[NamedTuple]:
        """The result of the oldest pass in flight is about to be processed. Returns its events."""
        return ()

    def inputs_taken(self, events: Sequence[NamedTuple]) -> Sequence[Violation]:
        return ()

    def turn_ended(self, events: Sequence[NamedTuple]) -> Sequence[Violation]:
        raise NotImplementedError

    def evidence(self) -> Evidence:
        return Evidence((), ())
