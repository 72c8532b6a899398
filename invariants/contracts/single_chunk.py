"""Only one prompt at a time is computed in chunks.

On a server: Two prompts share the state of one chunk: a prompt is cut, or an assertion ends the scheduler.
"""

from swarden.invariants.invariant import state_invariant
from swarden.invariants.kinds import Place
from swarden.invariants.transition import Transition
from swarden.invariants.violation import Code, Evidence, found, request_ref


class SingleChunkCode(Code):
    SECOND_CHUNK = "between chunks, and so is {first}"


@state_invariant(needs=("requests",), reads=("requests",))
def one_request_is_between_chunks(change: Transition) -> Evidence:
    """At most one request is between two chunks of its prompt."""
    first, *others = [request.id for request in change.after.requests or () if request.place == Place.CHUNKED] or [0]
    for request_id in others:
        yield found(request_ref(request_id), SingleChunkCode.SECOND_CHUNK, first=request_ref(first))
