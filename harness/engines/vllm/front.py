"""Requests with several sequences: the front end of a release makes a request of each, and collects their outputs."""

from collections.abc import Iterator, Sequence
from copy import copy
from functools import lru_cache
from operator import attrgetter
from typing import Any, NamedTuple

from swarden.harness.engines.vllm.boot import VllmRelease


@lru_cache
def number_of(rid: str) -> int:
    """The number of a request; the sequence INDEX_PARENT has one after that of its parent.  A suffix is ignored."""
    index, _, number = rid.partition("-")[0].rpartition("_")
    return int(number) + int(index or 0)


class Answer(NamedTuple):
    """New tokens for the client of a sequence, and how it has ended, if it has."""

    number: int
    tokens: Sequence[int]
    finish_reason: str | None


class VllmFront:
    """The parts of a release's AsyncLLM that know parents: fan-out, output processor and collectors.

    A collector merges what its client has not got yet: here, the outputs of one step.
    """

    def __init__(self, release: VllmRelease) -> None:
        self._release = release
        self._processor = release.code("OutputProcessor")(None, log_stats=False)
        self._collectors: dict[int, Any] = {}  # by the number of the parent, which is that of its first sequence

    def fan_out(self, request: Any) -> Iterator[Any]:
        """The requests for the core, as AsyncLLM.add_request makes them."""
        parent, kind = self._release.code("ParentRequest")(request), self._release.code("RequestOutputCollector")
        collector = self._collectors[int(request.request_id)] = kind(request.params.output_kind, request.request_id)
        for index in range(request.params.n):
            child = copy(request)
            child.request_id, child.sampling_params = parent.get_child_info(index)
            self._processor.add_request(child, None, parent, index, collector)
            yield child

    def process(self, outputs: Sequence[Any]) -> Sequence[str]:
        """Take outputs of the core; returns the requests that it shall abort.  Those of other requests are ignored."""
        aborted: Sequence[str] = self._processor.process_outputs(outputs).reqs_to_abort
        return aborted

    def abort(self, parent: int) -> Sequence[str]:
        """As for a client that is gone; returns the requests that the core shall abort, sorted: a release has a set."""
        return sorted(self._processor.abort_requests([str(parent)], internal=True))

    def answers(self) -> Iterator[Answer]:
        """The outputs that the clients get now."""
        for parent, collector in list(self._collectors.items()):
            if (output := collector.get_nowait()) is not None:
                for of_sequence in sorted(output.outputs, key=attrgetter("index")):
                    yield Answer(parent + of_sequence.index, of_sequence.token_ids, of_sequence.finish_reason)
                if output.finished:
                    del self._collectors[parent]
