"""The contents of copies: between the device and the host, between two engines, and of swaps.

On a server: KV changes on its way to the host, back, or to another engine: a wrong answer, silently.
"""

from swarden.invariants.events import Copied, Received
from swarden.invariants.invariant import invariant
from swarden.invariants.transition import Transition, When
from swarden.invariants.violation import Code, Evidence, Ref, found, request_ref, unit_ref


class CopyCode(Code):
    DIFFERS = "holds other content than {copy}, the other end of the copy"
    CHANGED_ON_THE_WAY = "holds other bytes than were sent to it for {request}"


@invariant(When.OP, needs=("copy_jobs",), on=(Copied,))
def copies_equal_their_source(change: Transition) -> Evidence:
    """After a successful copy, each page holds the same bits on the device and on the host."""
    for event in change.events_of(Copied):
        pool, host = change.after.pool(event.pool), change.after.host_pool_of[event.pool]
        for here, there in event.different:
            yield found(unit_ref(pool, here), CopyCode.DIFFERS, copy=Ref(pool.unit, there, host))


@invariant(When.OP, on=(Received,))
def pages_arrive_as_they_were_sent(change: Transition) -> Evidence:
    """A page that was transferred or swapped has the bytes that were read at the other end."""
    for event in change.events_of(Received):
        for unit in event.different:
            subject = unit_ref(change.after.pool(event.pool), unit)
            yield found(subject, CopyCode.CHANGED_ON_THE_WAY, request=request_ref(event.request_id))
