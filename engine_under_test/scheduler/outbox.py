"""The outputs that clients get with the next step."""

from swarden.engine_under_test.ports import Observer
from swarden.engine_under_test.request import Ending, Output, Request
from swarden.invariants.events import Finished


class Outbox:
    """The requests with new output for their clients; a step sends one output for each, the ended requests last."""

    def __init__(self, observer: Observer | None) -> None:
        self._observer = observer
        self._advanced: list[Request] = []
        self._ended: list[Request] = []

    def __bool__(self) -> bool:
        """Is there an end of a request that was not sent yet?"""
        return bool(self._ended)

    def note_tokens(self, request: Request) -> None:
        self._advanced.append(request)

    def note_end(self, request: Request, ending: Ending) -> None:
        """Record and report the end of a request, with its reason for the client."""
        request.finish_reason = str(ending)
        self._ended.append(request)
        if self._observer:
            self._observer.notice(Finished(request.id, ending.reason, ending.detail))

    def send(self) -> list[Output]:
        ended, self._ended = self._ended, []
        advanced, self._advanced = self._advanced, []
        unfinished = [request for request in dict.fromkeys(advanced) if request.finish_reason is None]
        return [request.send() for request in [*unfinished, *ended]]
