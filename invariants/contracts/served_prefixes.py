"""A prefix that was served is found again.

On a server: A prompt that was just answered is computed again: the hit rate falls, while all answers are right.
"""

from swarden.invariants.contracts.completeness import shares_prefixes
from swarden.invariants.events import Launched
from swarden.invariants.invariant import invariant
from swarden.invariants.kinds import Place
from swarden.invariants.past import still_served
from swarden.invariants.reference import Expectation
from swarden.invariants.transition import Transition, When
from swarden.invariants.violation import Code, Evidence, found, request_ref


class ServedPrefixCode(Code):
    COMPUTED_AGAIN = (
        "its first pass begins at {start}, but {served} tokens of it were computed for {other}, and not evicted"
    )


@invariant(When.STEP, needs=("requests", "records", "Completed", "Removed"), on=(Launched,), given=shares_prefixes)
def served_prefixes_are_hit(change: Transition) -> Evidence:
    """A request begins behind the longest prefix of it that other requests have computed, if it was not evicted since.

    Such a prefix ends where the next token has its window and its state: at each page of a prompt, and at the end of an
    answer.  At least the last token is computed.  Not checked: turns of sessions, requests that ask not to be cached,
    and those that have waited for a load.
    """
    for event in change.events_of(Launched) if change.reference.past.served else ():
        for request_id, start, _ in event.entries:
            request = change.before.request_by_id.get(request_id)
            expected = change.reference.expectations.get(request_id)
            if (
                request is not None
                and request.place == Place.WAITING
                and not request.session
                and request_id not in change.before.record_by_request
                and expected is not None
                and not expected.is_uncached
            ):
                served, other = _served(change, expected, most=request.prompt_len + request.num_outputs - 1)
                if served > start:
                    values = {"start": start, "served": served, "other": request_ref(other)}
                    yield found(request_ref(request_id), ServedPrefixCode.COMPUTED_AGAIN, **values)


def _served(change: Transition, expected: Expectation, *, most: int) -> tuple[int, int]:
    """The length of the longest served prefix of these tokens that has at most so many, and its request."""
    longest = (0, 0)
    for request_id, lengths in change.once(still_served).items():
        other = change.reference.expectations.get(request_id)
        same = [
            one
            for one in lengths
            if one <= most and other is not None and other.tags[one - 1] == expected.tags[one - 1]
        ]
        longest = max([longest, *[(length, request_id) for length in same]])
    return longest
