"""The queue of waiting requests, and the outputs that clients get with the next step."""

from collections.abc import Callable, Iterator

from swarden.engine_under_test.ports import Observer
from swarden.engine_under_test.request import Ending, Output, Request
from swarden.invariants.events import Finished


class WaitingQueue:
    """Requests without KV, in order of arrival; a retracted request keeps its place."""

    def __init__(self) -> None:
        self._requests: dict[int, Request] = {}
        self._in_order = True

    def __len__(self) -> int:
        return len(self._requests)

    def __iter__(self) -> Iterator[Request]:
        """The requests in the order in which they arrived."""
        if not self._in_order:
            self._requests = dict(sorted(self._requests.items()))
            self._in_order = True
        return iter(list(self._requests.values()))

    def add(self, request: Request) -> None:
        self._in_order = not self._requests or (self._in_order and request.id > next(reversed(self._requests)))
        self._requests[request.id] = request

    def remove(self, request: Request) -> None:
        del self._requests[request.id]

    def __contains__(self, request: Request) -> bool:
        return request.id in self._requests

    def in_order(self, match_len: Callable[[Request], int] | None = None) -> list[Request]:
        """The requests by priority; then, with `match_len`, by the longest match; then by arrival."""
        requests = sorted(self, key=lambda request: -match_len(request)) if match_len else list(self)
        return sorted(requests, key=lambda request: -request.priority)


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
