"""The tags of the prefixes of all live requests, as they follow from the tokens of clients and of passes."""

from array import array
from collections.abc import Sequence

import numpy as np

from swarden.engine_under_test.components import Component
from swarden.engine_under_test.request import Request
from swarden.engine_under_test.scheduler.batch import Entry
from swarden.harness.engines.own.content.slots import Ints
from swarden.invariants.events import Finished, Submitted
from swarden.invariants.reference import Expectation


class Prefixes:
    """The tokens of each live request with a tag each, which is a hash of the prefix that ends there."""

    def __init__(self) -> None:
        self._expected: dict[int, Expectation] = {}

    def submitted(self, event: Submitted) -> None:
        self._expected[event.request_id] = Expectation(event.namespace, len(event.tokens), list(event.tokens))

    def finished(self, event: Finished) -> None:
        self._expected.pop(event.request_id, None)

    def tags(self, entry: Entry) -> Ints:
        """The tags of the known tokens of an entry's request.  A view, which must be dropped before the next call."""
        return np.frombuffer(self._known(entry.request).tags, np.int64)

    def written(self, entry: Entry) -> "array[int]":
        """The tags of the slots that a completed pass wrote for an entry of a live request, drafts included."""
        expected = self._known(entry.request)
        assert len(expected.tags) >= entry.end, f"request {entry.request.id}: {len(expected.tags)} tags of {entry.end}"
        return expected.tags_of(entry.start, entry.reach, entry.drafts)

    def filled(self, request: Request, places: Sequence[int], component: Component) -> Ints:
        """The tags of whole pages of a request, by their page indices; 0 behind its tokens.

        Of a page of states, only the one from which the request goes on is known.
        """
        expected, page_size = self._known(request), component.page_size
        tags = np.zeros((len(places), component.slots or page_size), np.int64)
        last = (len(request.tokens) - 1 if request.num_outputs else request.prompt_len) - 1
        for line, place in zip(tags, places, strict=True):
            of_page = expected.tags[place * page_size : (place + 1) * page_size]
            if not component.slots:
                line[: len(of_page)] = of_page
            elif last // page_size == place:
                line[last % component.slots] = expected.tags[last]
        return tags.reshape(-1)

    def holders(self, tag: int) -> tuple[int, ...]:
        """The requests with a prefix of this tag."""
        return tuple(request_id for request_id, expected in self._expected.items() if tag in expected.tags)

    def _known(self, request: Request) -> Expectation:
        """All tokens of a live request so far."""
        expected, tokens = self._expected[request.id], request.tokens
        if len(expected.tokens) < len(tokens):
            expected.extend(tokens[len(expected.tokens) :])
        return expected
