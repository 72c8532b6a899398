"""The queue of waiting requests."""

from collections.abc import Callable, Iterator

from swarden.engine_under_test.request import Request


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
