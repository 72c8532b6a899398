"""The contents of copies between the device and the host."""

from invariants.events import Copied
from invariants.invariant import invariant
from invariants.transition import Transition, When
from invariants.violation import Code, Evidence, Ref, found, unit_ref


class CopyCode(Code):
    DIFFERS = "differs"


@invariant(When.OP, needs=("copy_jobs",), on=(Copied,))
def copies_equal_their_source(change: Transition) -> Evidence:
    """After a successful copy, each page holds the same bits on the device and on the host."""
    for event in change.events_of(Copied):
        pool, host = change.after.pool(event.pool), change.after.host_pool_of[event.pool]
        for here, there in event.different:
            yield found(unit_ref(pool, here), CopyCode.DIFFERS, copy=Ref(pool.unit, there, host))
