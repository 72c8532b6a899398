"""Speculation: guesses that are computed beside what is sure, and how many of them count."""

from invariants.events import Completed, Launched, Proposed, Verified
from invariants.invariant import invariant
from invariants.transition import Transition, When
from invariants.violation import Evidence
from invariants.wording import request_name


@invariant(When.OP, needs=("records",), on=(Proposed,))
def drafts_stay_in_their_room(change: Transition) -> Evidence:
    """Drafts stand behind the one last token of a request that decodes, no more than there are to be, on its pages."""
    limits = change.after.limits
    ends = {(event.launch, entry[0]): entry for event in change.events_of(Launched) for entry in event.entries}
    for event in change.events_of(Proposed):
        subject, count = request_name(event.request_id), len(event.drafts)
        _, start, end = ends.get((event.launch, event.request_id), (0, 0, 0))
        if end - start != 1:
            yield subject, f"has {count} drafts in launch {event.launch}, which computes [{start}, {end}) for it"
        if count > limits.draft_len:
            yield subject, f"has {count} drafts, at most {limits.draft_len} may be"
        record = change.after.record_by_request.get(event.request_id)
        if record is not None and event.request_id not in change.put_back and end + count > record.allocated_len:
            yield subject, f"has drafts up to {end + count}, with room up to {record.allocated_len}"


@invariant(When.OP, needs=("launches",), on=(Verified,))
def drafts_count_as_far_as_the_model_says_them(change: Transition) -> Evidence:
    """Of the drafts of a pass those count that the model has said itself, up to the first that it has not."""
    for event in change.events_of(Verified):
        subject, drafts = request_name(event.request_id), change.drafts.get((event.launch, event.request_id), ())
        said = list(event.tokens)
        if len(said) != len(drafts) + 1:
            yield subject, f"{len(said)} tokens were said to {len(drafts)} drafts in launch {event.launch}"
        pairs = enumerate(zip(drafts, said, strict=False))
        want = next((place for place, (draft, token) in pairs if draft != token), len(drafts))
        if event.num_accepted != want:
            yield subject, f"{event.num_accepted} of the drafts {list(drafts)} count, the model said {said}"


@invariant(When.OP, needs=("launches",), on=(Launched,))
def nothing_goes_on_from_a_guess(change: Transition) -> Evidence:
    """A request with drafts in flight is computed no further before they are judged."""
    in_flight = {
        (view.launch, request)
        for view in change.before.launches or ()
        for (request, _, _), drafts in zip(view.entries, view.drafts, strict=False)
        if drafts and request not in view.given_up
    }
    for event in change.events:
        if isinstance(event, Launched):
            guessed = {request: launch for launch, request in in_flight}
            for request, start, end in event.entries:
                if request in guessed and request not in change.put_back:
                    drafts = f"its drafts in launch {guessed[request]} are not judged"
                    yield request_name(request), f"launch {event.launch} computes [{start}, {end}), yet {drafts}"
        elif isinstance(event, Proposed):
            in_flight.add((event.launch, event.request_id))
        elif isinstance(event, Completed):
            in_flight = {one for one in in_flight if one[0] != event.launch}
