"""A request is aborted for want of memory only as the last resort.

On a server: A client gets an error although its request fits the pools.
"""

from swarden.invariants.events import OUTSIDE_KIND, Finished, FinishReason, Loaded
from swarden.invariants.invariant import invariant
from swarden.invariants.transition import Transition, When
from swarden.invariants.view import Snapshot
from swarden.invariants.violation import Code, Evidence, found, request_ref
from swarden.invariants.windows import kept_len


class OutOfMemoryCode(Code):
    WOULD_FIT_ALONE = "aborted at {length} tokens, but its next token fits the pools alone"


@invariant(When.OP, needs=("records",), on=(Finished,))
def oom_abort_only_if_alone(change: Transition) -> Evidence:
    """A request is aborted for want of memory only if its next token does not fit the pools even if it is alone.

    The next token is behind a prefix that was loaded in the same step.  Units held from outside the engine are not
    available; a windowed pool must have a window and a page on either side.
    """
    loaded = {event.request_id: event.length for event in change.events_of(Loaded)}
    for event in change.events_of(Finished):
        record = change.before.record_by_request.get(event.request_id)
        if event.reason == FinishReason.OUT_OF_MEMORY and record is not None:
            reached = max(record.launched_len, loaded.get(event.request_id, 0))
            length = reached + change.accepted.get(event.request_id, 0)
            if _fits_alone(change.before, length + 1):
                yield found(request_ref(event.request_id), OutOfMemoryCode.WOULD_FIT_ALONE, length=length)


def _fits_alone(snapshot: Snapshot, length: int) -> bool:
    """Do `length` tokens of one request and its lookahead fit every pool?"""
    page_size, lookahead = snapshot.limits.page_size, snapshot.limits.lookahead_len
    for component in snapshot.components:
        pool = snapshot.pool_by_name[component.pool]
        outside = sum(len(holding.units) for holding in pool.holdings if holding.owner.kind == OUTSIDE_KIND)
        needed = -(-(length + lookahead) // page_size)
        if component.window is not None:
            needed = kept_len(component.window, page_size) // page_size + 2 - (-lookahead // page_size)
        if needed > pool.capacity - outside:
            return False
    return True
