"""What the new-token ratio learns, and from whom."""

from collections.abc import Iterator, Sequence

from invariants.events import Evicted, Finished, Launched, RanOut, Retracted, TransferEnded
from invariants.invariant import invariant
from invariants.limits import Estimates
from invariants.passes import Standing
from invariants.transition import Transition, When
from invariants.view import RequestView
from invariants.violation import Evidence

ABORTED = "abort"
MILLION = 1_000_000
HEADROOM = 20  # output tokens that each survivor of a retraction is expected to need at once
ROUNDING = 1  # the ratio is told in whole millionths


def is_foretold(change: Transition) -> bool:
    return change.after.limits.estimates is not None and change.before.limits == change.after.limits


@invariant(When.OP, needs=("claims", "requests", "launches"), given=is_foretold)
def the_ratio_learns_from_what_happened(change: Transition) -> Evidence:
    """A retraction sets the new-token ratio to what the survivors have shown, a decode step without one lowers it.

    Where nobody holds KV it begins anew; otherwise it stays, as it does where a decode step was short and nobody had
    to give way.
    """
    estimates, before, after = change.after.limits.estimates, change.before.claims, change.after.claims
    assert estimates is not None, "the estimates are given"
    assert before is not None, "claims are needed"
    assert after is not None, "claims are needed"
    expected = list(_expected(change, estimates, before.new_token_ratio))
    if all(abs(after.new_token_ratio - one) > ROUNDING for one in expected):
        wanted = " or ".join(f"{one:.0f}" for one in expected)
        yield (
            "new-token ratio",
            f"went from {before.new_token_ratio} to {after.new_token_ratio} millionths, want {wanted}",
        )


def _expected(change: Transition, estimates: Estimates, ratio: float) -> Iterator[float]:
    """What the ratio may be after the step, in millionths; a client may have left its request behind the step."""
    is_idle = all(request.place in ("waiting", "linked") for request in change.after.requests or ())
    if change.when is not When.STEP:
        yield ratio
        return
    if is_idle:
        yield estimates.initial_ratio
    if not is_idle or any(event.reason == ABORTED for event in change.events_of(Finished)):
        floor = change.after.limits.ratio_floor
        lowered = max(floor, ratio - (estimates.initial_ratio - floor) / estimates.decay_steps)
        yield from _expected_of_work(change, ratio, lowered)


def _expected_of_work(change: Transition, ratio: float, lowered: float) -> Iterator[float]:
    launches = change.events_of(Launched)
    decodes = any(entry[0] not in change.admitted for event in launches for entry in event.entries)
    if change.events_of(Retracted):
        survivors = _survivors(change)
        shown = sum(outputs + HEADROOM for _, outputs in survivors)
        asked = 1 + sum(request.max_new_tokens for request, _ in survivors)
        yield max(change.after.limits.ratio_floor, min(MILLION, MILLION * shown / asked))
    elif not change.events_of(RanOut) and not _waited_for_copies(change):
        yield lowered if decodes and not _was_short(change) else ratio
    else:
        yield from (ratio, lowered)


def _was_short(change: Transition) -> bool:
    """Did an eviction find less than was needed, so that the step waited for results or for windows to slide?"""
    return any(
        dict(event.freed).get(pool, 0) < count for event in change.events_of(Evicted) for pool, count in event.need
    )


def _waited_for_copies(change: Transition) -> bool:
    """Did a copy reach the host after an eviction had begun?  It may have found, then, all that it needed."""
    events = change.events
    first = next((place for place, event in enumerate(events) if isinstance(event, Evicted)), len(events))
    return any(isinstance(event, TransferEnded) for event in events[first:])


def _survivors(change: Transition) -> Sequence[tuple[RequestView, int]]:
    """Who held KV after the last retraction, with the output tokens that each had by then."""
    standing, survivors = Standing(change.before, change.landings), list[tuple[RequestView, int]]()
    for event in change.pass_events:
        standing.hear(event)
        if isinstance(event, Retracted):
            survivors = [(standing.requests[one], standing.outputs[one]) for one in standing.holders]
    return survivors
