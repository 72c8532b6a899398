"""A prefix that was served is found again.

On a server: A prompt that was just answered is computed again: the hit rate falls, while all answers are right.
"""

from collections.abc import Callable
from functools import partial

from swarden.invariants.events import Launched
from swarden.invariants.invariant import invariant
from swarden.invariants.kinds import Place
from swarden.invariants.past import Served, still_served
from swarden.invariants.reference import Expectation
from swarden.invariants.served_blocks import is_whole
from swarden.invariants.transition import Transition, When
from swarden.invariants.violation import Code, Evidence, found, request_ref


class ServedPrefixCode(Code):
    COMPUTED_AGAIN = (
        "its first pass begins at {start}, but {served} tokens of it were computed for {other}, and not evicted"
    )


def promises_replays(change: Transition) -> bool:
    """Does the engine promise where a request begins that shares a prompt (`Limits.replays`)?"""
    return change.after.limits.replays is not None


@invariant(
    When.STEP, needs=("requests", "records", "nodes", "Completed", "Freed"), on=(Launched,), given=promises_replays
)
def served_prefixes_are_hit(change: Transition) -> Evidence:
    """A request begins behind the longest prefix of it that other requests have computed, if it was not evicted since.

    Such a prefix ends where the next token has its window and its state: at each page of a prompt, and at the end of an
    answer.  At least the last token is computed.  Not checked: turns of sessions, requests that ask not to be cached,
    and those that have waited for a load.
    """
    yield from _computed_again(change, change.once(still_served), 0, lambda *_: True)


@invariant(
    When.STEP,
    needs=("requests", "records", "Completed", "Admitted", "Freed", "Given", "cached_columns"),
    on=(Launched,),
    given=promises_replays,
)
def served_blocks_are_hit(change: Transition) -> Evidence:
    """A request begins behind the longest prompt of other requests that it shares, as far as an engine promises it.

    As `served_prefixes_are_hit`, for an engine that finds its blocks by hashes.  A prompt is served unless the cache
    has lost a block of it that it had; a block that was never cached is no excuse.
    """
    replays = change.after.limits.replays
    assert replays is not None, "limits.replays is needed"
    yield from _computed_again(change, change.reference.past.served, replays.peek_len, partial(is_whole, change))


def _computed_again(change: Transition, served: Served, peek_len: int, is_kept: Callable[[int, int], bool]) -> Evidence:
    """The first passes that compute served tokens that are kept; a request shares `peek_len` tokens behind its hit."""
    reads = change.before.cached_columns
    for event in change.events_of(Launched):
        for request_id, start, _ in event.entries:
            request = change.before.request_by_id.get(request_id)
            expected = change.reference.expectations.get(request_id)
            if (
                request is not None
                and request.place == Place.WAITING
                and not request.session
                and request_id not in change.before.record_by_request
                and (reads is None or request_id in reads)
                and expected is not None
                and not expected.is_uncached
            ):
                most = request.prompt_len + request.num_outputs - 1 - peek_len
                longest = (0, 0)
                for other_id, lengths in served.items():
                    other = change.reference.expectations.get(other_id)
                    same = [
                        length
                        for length in lengths
                        if start < length <= most and other is not None and _shares(other, expected, length + peek_len)
                        if is_kept(other_id, length)
                    ]
                    longest = max([longest, *[(length, other_id) for length in same]])
                if longest[0] > start:
                    values = {"start": start, "served": longest[0], "other": request_ref(longest[1])}
                    yield found(request_ref(request_id), ServedPrefixCode.COMPUTED_AGAIN, **values)


def _shares(one: Expectation, other: Expectation, length: int) -> bool:
    """Have two requests the same first tokens?"""
    return one.tags[length - 1 : length] == other.tags[length - 1 : length]
