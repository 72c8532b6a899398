"""The new-token ratio rises at a retraction and falls with each decode step.

On a server: The estimate of future tokens is wrong: too many requests start and are retracted, or too few start.
"""

from collections.abc import Iterator, Sequence
from itertools import dropwhile

from swarden.invariants.events import CopyEnded, Evicted, Finished, FinishReason, Launched, RanOut, Retracted
from swarden.invariants.invariant import invariant
from swarden.invariants.kinds import Place
from swarden.invariants.limits import Estimates
from swarden.invariants.passes import KVHolders
from swarden.invariants.transition import Transition, When
from swarden.invariants.view import RequestView
from swarden.invariants.violation import Code, Evidence, Ref, found

MILLION = 1_000_000
HEADROOM = 20  # further output tokens that each survivor of a retraction is estimated to need
WITHOUT_KV = frozenset({Place.WAITING, Place.LINKED})
ROUNDING = 1  # the ratio is counted in whole millionths


class RatioCode(Code):
    OTHER_THAN_FORETOLD = "{before} before and {after} after the step, in millionths; permitted: {want}"


def ratio_is_predictable(change: Transition) -> bool:
    """Do the limits have the estimates of the ratio, as before the change?"""
    return change.after.limits.estimates is not None and change.has_same_limits


@invariant(When.OP, needs=("counters", "requests", "launches"), given=ratio_is_predictable)
def new_token_ratio_follows_retractions(change: Transition) -> Evidence:
    """The ratio is lowered by each decode step, set by a retraction, and set to its start when no request holds KV.

    A retraction sets it to (outputs + HEADROOM each) / max_new_tokens, summed over the requests that still hold KV.  It
    is never below its floor or above 1.  A decode step that lacks pages but retracts none does not change it.  Where
    the snapshots do not show which case applies (after RanOut, after a late copy or an abort), each is permitted.
    """
    estimates, before, after = change.after.limits.estimates, change.before.counters, change.after.counters
    assert estimates is not None, "estimates are needed"
    assert before is not None, "counters are needed"
    assert after is not None, "counters are needed"
    expected = list(_expected(change, estimates, before.new_token_ratio))
    if all(abs(after.new_token_ratio - ratio) > ROUNDING for ratio in expected):
        values = {"before": before.new_token_ratio, "after": after.new_token_ratio}
        want = tuple(round(ratio) for ratio in expected)
        yield found(Ref("new-token ratio"), RatioCode.OTHER_THAN_FORETOLD, want=want, **values)


def _expected(change: Transition, estimates: Estimates, ratio: float) -> Iterator[float]:
    """The permitted ratios after the step, in millionths; a client may have aborted its request after the forward."""
    if change.when is not When.STEP:
        yield ratio
        return
    is_idle = {request.place for request in change.after.requests or ()} <= WITHOUT_KV
    if is_idle:
        yield estimates.initial_ratio
    if not is_idle or any(event.reason == FinishReason.ABORT for event in change.events_of(Finished)):
        floor = change.after.limits.ratio_floor
        lowered = max(floor, ratio - (estimates.initial_ratio - floor) / estimates.decay_steps)
        yield from _expected_of_work(change, ratio, lowered)


def _expected_of_work(change: Transition, ratio: float, lowered: float) -> Iterator[float]:
    launches = change.events_of(Launched)
    decodes = any(entry[0] not in change.admitted for event in launches for entry in event.entries)
    if change.events_of(Retracted):
        survivors = _survivors(change)
        estimated = sum(outputs + HEADROOM for _, outputs in survivors)
        requested = 1 + sum(request.max_new_tokens for request, _ in survivors)
        yield max(change.after.limits.ratio_floor, min(MILLION, MILLION * estimated / requested))
    elif not change.events_of(RanOut) and not _waited_for_copies(change):
        yield lowered if decodes and not _was_short(change) else ratio
    else:
        yield from (ratio, lowered)


def _was_short(change: Transition) -> bool:
    """Did an eviction free too little, so that the step waited for results or for windows to slide?"""
    return any(
        dict(event.freed).get(pool, 0) < count for event in change.events_of(Evicted) for pool, count in event.need
    )


def _waited_for_copies(change: Transition) -> bool:
    """Did a copy end after an eviction?  If so, the eviction may have freed enough units in the end."""
    if Evicted not in change.by_type or CopyEnded not in change.by_type:
        return False
    later = list(dropwhile(lambda event: not isinstance(event, Evicted), change.events))
    return any(isinstance(event, CopyEnded) for event in later)


def _survivors(change: Transition) -> Sequence[tuple[RequestView, int]]:
    """The requests that held KV after the last retraction, each with its number of output tokens at that time."""
    holders, survivors = KVHolders(change.before, change.landings), list[tuple[RequestView, int]]()
    for event in change.pass_events:
        holders.apply(event)
        if isinstance(event, Retracted):
            survivors = [(holders.requests[request_id], holders.outputs[request_id]) for request_id in holders.ids]
    return survivors
