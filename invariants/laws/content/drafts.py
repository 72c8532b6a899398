"""Draft tokens: they fit the pages of their request, and only those that the model confirms are accepted.

On a server: A client gets tokens that the model would not sample, or drafts are written to pages of other requests.
"""

from swarden.invariants.events import Launched, Proposed, Verified
from swarden.invariants.invariant import invariant
from swarden.invariants.transition import Transition, When
from swarden.invariants.violation import Code, Evidence, found, request_ref


class DraftCode(Code):
    TOO_MANY = "{count} drafts, at most {most} are allowed"
    BEYOND_ALLOCATION = "its drafts end at position {end}, but its pages at {allocated_len}"
    NOT_ALL_VERIFIED = "launch {launch} sampled {sampled} tokens for {drafts} drafts"
    WRONG_DRAFT_ACCEPTED = "{accepted} of the drafts {drafts} are accepted, the model sampled {sampled}"


@invariant(When.OP, needs=("records", "Launched"), on=(Proposed,))
def drafts_fit_their_allocation(change: Transition) -> Evidence:
    """A pass computes at most draft_len drafts for a request, all on allocated pages.

    The pages are not checked if the request released its record in the same step.  An engine without a lookahead may
    free those of rejected drafts when it has verified them.
    """
    most = change.after.limits.draft_len
    ends = {(event.launch, entry[0]): entry[2] for event in change.events_of(Launched) for entry in event.entries}
    accepted = {(event.launch, event.request_id): event.num_accepted for event in change.events_of(Verified)}
    for event in change.events_of(Proposed):
        subject, count = request_ref(event.request_id), len(event.drafts)
        if count > most:
            yield found(subject, DraftCode.TOO_MANY, count=count, most=most)
        kept = count if change.after.limits.lookahead_len else accepted.get((event.launch, event.request_id), count)
        end = ends.get((event.launch, event.request_id), 0) + kept
        record = change.after.record_by_request.get(event.request_id)
        if record is not None and event.request_id not in change.released and end > record.allocated_len:
            yield found(subject, DraftCode.BEYOND_ALLOCATION, end=end, allocated_len=record.allocated_len)


@invariant(When.OP, needs=("launches", "Proposed"), on=(Verified,))
def accepted_drafts_match_the_model(change: Transition) -> Evidence:
    """Each accepted draft is the token that the model samples at its position.

    The model samples one token more than there are drafts: the last one follows the last draft.
    """
    for event in change.events_of(Verified):
        subject, drafts = request_ref(event.request_id), change.drafts.get((event.launch, event.request_id), ())
        sampled = tuple(event.tokens)
        if len(sampled) != len(drafts) + 1:
            yield found(
                subject, DraftCode.NOT_ALL_VERIFIED, launch=event.launch, sampled=len(sampled), drafts=len(drafts)
            )
        accepted = event.num_accepted
        if accepted > len(drafts) or tuple(drafts[:accepted]) != sampled[:accepted]:
            drafted = tuple(drafts)
            yield found(subject, DraftCode.WRONG_DRAFT_ACCEPTED, accepted=accepted, drafts=drafted, sampled=sampled)
