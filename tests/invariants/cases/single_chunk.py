"""Two requests between chunks."""

from swarden.invariants.contracts.single_chunk import SingleChunkCode, one_request_is_between_chunks
from swarden.invariants.kinds import Place
from swarden.invariants.view import RequestView
from swarden.invariants.violation import found, request_ref
from tests.invariants.builders import AFTER, after, broken

RUNNING, _ = AFTER.requests or ()
CHUNKED = RUNNING._replace(place=Place.CHUNKED)

CASES = [
    broken(
        one_request_is_between_chunks,
        "two",
        after(requests=(CHUNKED, RequestView(2, Place.CHUNKED, 0, 5, 0, 1))),
        found(request_ref(2), SingleChunkCode.SECOND_CHUNK, first=request_ref(1)),
    )
]
