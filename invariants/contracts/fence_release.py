"""Fences end at once, when their launch has completed.

On a server: Freed pages cannot be taken: the pool seems smaller than it is, and requests wait or are retracted.
"""

from swarden.invariants.events import Completed
from swarden.invariants.invariant import invariant
from swarden.invariants.laws.lifecycle.flights import launch_ref
from swarden.invariants.transition import Transition, When
from swarden.invariants.violation import Code, Evidence, Ref, found, unit_ref


class FenceReleaseCode(Code):
    FENCED_AFTER_COMPLETION = "still fenced after {launch} completed"
    FENCED_FOR_NO_LAUNCH = "fenced for {launch}, which is not in flight"
    LOCKED_AFTER_COMPLETION = "still held after {launch} completed"
    LOCKED_FOR_NO_LAUNCH = "held for {launch}, which is not in flight"


def has_fences_after(change: Transition) -> bool:
    """Does a freed unit or lock wait for its pass in a fence?"""
    return change.after.has_fences or bool(change.after.fence_receipts)


@invariant(When.OP, needs=("launches", "Completed"), given=has_fences_after)
def fences_end_with_their_launch(change: Transition) -> Evidence:
    """No unit and no lock is behind a fence for a launch that has completed or is not in flight."""
    after = change.after
    completed = max((event.launch for event in change.events_of(Completed)), default=0)
    for pool in after.pools:
        for fence in pool.fenced:
            if fence.launch <= completed or fence.launch not in after.launch_by_id:
                is_over = fence.launch <= completed
                code = FenceReleaseCode.FENCED_AFTER_COMPLETION if is_over else FenceReleaseCode.FENCED_FOR_NO_LAUNCH
                for unit in fence.units:
                    yield found(unit_ref(pool, unit), code, launch=launch_ref(fence.launch))
    for receipt in after.fence_receipts:
        launch = receipt.holder.id
        if launch <= completed or launch not in after.launch_by_id:
            is_over = launch <= completed
            code = FenceReleaseCode.LOCKED_AFTER_COMPLETION if is_over else FenceReleaseCode.LOCKED_FOR_NO_LAUNCH
            yield found(Ref("receipt", receipt.id), code, launch=launch_ref(launch))
