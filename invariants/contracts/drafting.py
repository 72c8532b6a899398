"""Drafts follow one token, all correct drafts are accepted, and drafts are verified before the request's next pass.

On a server: Drafts are computed in vain or lost: speculative decoding costs more than it saves.
"""

from swarden.invariants.events import Completed, Launched, Proposed, Verified
from swarden.invariants.invariant import invariant
from swarden.invariants.transition import Transition, When
from swarden.invariants.violation import Code, Evidence, found, request_ref


class DraftingCode(Code):
    NOT_BEHIND_ONE_TOKEN = (
        "{count} drafts in launch {launch}, behind its range [{start}, {end}) of the request; want one of one token"
    )
    RIGHT_DRAFT_REJECTED = "{accepted} of the drafts {drafts} are accepted, the model samples {sampled}"
    VERDICT_NOT_AWAITED = (
        "launch {launch} computes [{start}, {end}), but the drafts of launch {drafted_in} are not verified"
    )


@invariant(When.OP, on=(Proposed,))
def drafts_follow_one_token(change: Transition) -> Evidence:
    """A pass computes drafts only behind the last token of a decoding request."""
    entries = {(event.launch, entry[0]): entry for event in change.events_of(Launched) for entry in event.entries}
    for event in change.events_of(Proposed):
        _, start, end = entries.get((event.launch, event.request_id), (0, 0, 0))
        if end - start != 1:
            values = {"count": len(event.drafts), "launch": event.launch, "start": start, "end": end}
            yield found(request_ref(event.request_id), DraftingCode.NOT_BEHIND_ONE_TOKEN, **values)


@invariant(When.OP, needs=("launches",), on=(Verified,))
def right_drafts_are_accepted(change: Transition) -> Evidence:
    """All drafts are accepted up to the first that differs from the token that the model samples."""
    for event in change.events_of(Verified):
        drafts, sampled = change.drafts.get((event.launch, event.request_id), ()), tuple(event.tokens)
        pairs = enumerate(zip(drafts, sampled, strict=False))
        want = next((place for place, (draft, token) in pairs if draft != token), len(drafts))
        if event.num_accepted < want:
            values = {"accepted": event.num_accepted, "drafts": tuple(drafts), "sampled": sampled}
            yield found(request_ref(event.request_id), DraftingCode.RIGHT_DRAFT_REJECTED, **values)


@invariant(When.OP, needs=("launches",), on=(Launched,))
def drafts_are_judged_before_the_next_pass(change: Transition) -> Evidence:
    """A request with drafts in flight is in no further pass until the drafts are verified.

    The drafts of a request that has released its record since are given up.
    """
    in_flight = {
        (view.launch, request)
        for view in change.before.launches or ()
        for (request, _, _), drafts in zip(view.entries, view.drafts, strict=False)
        if drafts and request not in view.given_up
    }
    for event in change.events if in_flight or change.events_of(Proposed) else ():
        if isinstance(event, Launched):
            drafted = {request: launch for launch, request in in_flight}
            for request, start, end in event.entries:
                if request in drafted and request not in change.released:
                    values = {"launch": event.launch, "start": start, "end": end, "drafted_in": drafted[request]}
                    yield found(request_ref(request), DraftingCode.VERDICT_NOT_AWAITED, **values)
        elif isinstance(event, Proposed):
            in_flight.add((event.launch, event.request_id))
        elif isinstance(event, Completed):
            in_flight = {(launch, request) for launch, request in in_flight if launch != event.launch}
