"""The new-token ratio stays within its bounds.

On a server: The estimate of future tokens is wrong: too many requests start and are retracted, or too few start.
"""

from swarden.invariants.invariant import state_invariant
from swarden.invariants.transition import Transition
from swarden.invariants.violation import Code, Evidence, Ref, found

MILLION = 1_000_000


class RatioRangeCode(Code):
    BELOW_FLOOR = "{ratio} millionths, the floor is {floor}"
    ABOVE_ONE = "{ratio} millionths, at most 1000000"


@state_invariant(needs=("counters",), reads=("counters",))
def new_token_ratio_is_in_range(change: Transition) -> Evidence:
    """The new-token ratio lies between its floor and 1."""
    counters, floor = change.after.counters, change.after.limits.ratio_floor
    assert counters is not None, "counters are needed"
    ratio, subject = counters.new_token_ratio, Ref("new-token ratio")
    if ratio < floor:
        yield found(subject, RatioRangeCode.BELOW_FLOOR, ratio=ratio, floor=floor)
    elif ratio > MILLION:
        yield found(subject, RatioRangeCode.ABOVE_ONE, ratio=ratio)
