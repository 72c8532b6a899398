"""The engine goes on, and what it learns stays within bounds."""

from invariants.base import Evidence, Transition, When, invariant, state_invariant
from invariants.view import OUTSIDE_KIND
from invariants.wording import request_name

MOST_IDLE_STEPS = 4  # so many steps in a row without a pass, with work waiting, are a livelock
MILLION = 1_000_000


def nobody_presses(change: Transition) -> bool:
    """Does no neighbour hold the pages for want of which everything may stand still?"""
    return change.steps_without_forward < MOST_IDLE_STEPS or not any(
        holding.owner.kind == OUTSIDE_KIND for pool in change.after.pools for holding in pool.holdings
    )


@invariant(When.STEP, covers=("PROGRESS",), given=nobody_presses)
def work_makes_progress(change: Transition) -> Evidence:
    """While there is work, a step computes something; an engine that does not is stuck."""
    if change.steps_without_forward >= MOST_IDLE_STEPS:
        named = ", ".join(f"{request_name(request.id)} {request.place}" for request in change.after.requests or ())
        yield "engine", f"{change.steps_without_forward} steps without a pass, with work{f': {named}' if named else ''}"


@state_invariant(covers=("RATIO",), needs=("claims",), reads=("claims",))
def the_ratio_is_in_range(change: Transition) -> Evidence:
    """The new-token ratio lies between its floor and 1."""
    claims, floor = change.after.claims, change.after.limits.ratio_floor
    assert claims is not None, "claims are needed"
    if not floor <= claims.new_token_ratio <= MILLION:
        yield "new-token ratio", f"{claims.new_token_ratio} millionths, want {floor} to {MILLION}"
