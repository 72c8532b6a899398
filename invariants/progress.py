"""The engine goes on, what it learns stays within bounds, and in the end nothing is left."""

from invariants.conservation import conservation_of
from invariants.invariant import invariant, state_invariant
from invariants.transition import Transition, When
from invariants.view import OUTSIDE_KIND
from invariants.violation import Code, Evidence, found, pool_ref
from invariants.wording import node_name, request_name

MOST_IDLE_STEPS = 4  # so many steps in a row without a pass, with work waiting, are a livelock
MILLION = 1_000_000


class DrainCode(Code):
    NOT_FULL = "not_full"


def nobody_presses(change: Transition) -> bool:
    """Is nothing paused or being copied, and does no neighbour hold the pages for want of which all may stand still?"""
    return change.steps_without_forward < MOST_IDLE_STEPS or not (
        change.before.is_paused
        or change.after.transfers
        or any(holding.owner.kind == OUTSIDE_KIND for pool in change.after.pools for holding in pool.holdings)
    )


@state_invariant(needs=("claims",), reads=("claims",))
def the_ratio_is_in_range(change: Transition) -> Evidence:
    """The new-token ratio lies between its floor and 1."""
    claims, floor = change.after.claims, change.after.limits.ratio_floor
    assert claims is not None, "claims are needed"
    if not floor <= claims.new_token_ratio <= MILLION:
        yield "new-token ratio", f"{claims.new_token_ratio} millionths, want {floor} to {MILLION}"


@invariant(When.STEP, given=nobody_presses)
def work_makes_progress(change: Transition) -> Evidence:
    """While there is work, a step computes something; an engine that does not is stuck."""
    if change.steps_without_forward >= MOST_IDLE_STEPS:
        named = ", ".join(f"{request_name(request.id)} {request.place}" for request in change.after.requests or ())
        yield "engine", f"{change.steps_without_forward} steps without a pass, with work{f': {named}' if named else ''}"


@invariant(When.QUIESCENT)
def drained_pools_are_full(change: Transition) -> Evidence:
    """After a drain every unit is free, nobody holds a request, a record or a lock, and nothing is under way."""
    after = change.after
    for pool in after.pools:
        if len(pool.free) != pool.capacity:
            yield found(pool_ref(pool.name), DrainCode.NOT_FULL, terms=conservation_of(pool))
    for request in after.requests or ():
        yield request_name(request.id), f"still {request.place}"
    for record in after.records or ():
        yield str(record.owner), f"still has row {record.row}"
    for receipt in after.receipts or ():
        yield f"receipt {receipt.id}", f"still out, held by {receipt.holder}"
    for node in after.nodes or ():
        yield node_name(node.id), f"still in the tree, with locks {list(node.locks)}"
    for view in after.launches or ():
        yield f"launch {view.launch}", "still in flight"
    for session in after.sessions or ():
        yield f"session {session.id}", "still open"
    for transfer in after.transfers or ():
        yield f"transfer {transfer.id}", "still under way"
