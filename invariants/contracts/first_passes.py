"""The first pass of a request begins behind what the cache has of it."""

from collections.abc import Sequence

from swarden.invariants.events import Launched
from swarden.invariants.invariant import invariant
from swarden.invariants.kinds import Place
from swarden.invariants.prefixes import Columns, columns_of, longest_usable
from swarden.invariants.transition import Transition, When
from swarden.invariants.view import RequestView
from swarden.invariants.violation import Code, Evidence, found, request_ref


class FirstPassCode(Code):
    CACHED_TOKENS_COMPUTED = "its first pass begins at {start}, but {usable} tokens of it are cached"


def shares_prefixes_without_states(change: Transition) -> bool:
    return change.after.limits.shares_prefixes and change.after.stateful is None


@invariant(When.STEP, needs=("nodes", "requests", "records"), on=(Launched,), given=shares_prefixes_without_states)
def first_passes_skip_cached_prefixes(change: Transition) -> Evidence:
    """The first pass of a waiting request begins behind the longest prefix of it that was cached all the step.

    At least its last token is computed.  Not for turns of sessions, and for requests that ask not
    to be cached.
    """
    before, page_size = change.before, change.after.limits.page_size
    for event in change.events_of(Launched):
        for request_id, start, _ in event.entries:
            request, expected = before.request_by_id.get(request_id), change.reference.expectations.get(request_id)
            if request is None or expected is None or expected.is_uncached or not _is_new(change, request):
                continue
            known = expected.tokens[: request.prompt_len + request.num_outputs]
            most = (len(known) - 1) // page_size
            usable = longest_usable(
                before, [column[:most] for column in _kept_columns(change, expected.namespace, known)]
            )
            if start < usable.length:
                yield found(
                    request_ref(request_id), FirstPassCode.CACHED_TOKENS_COMPUTED, start=start, usable=usable.length
                )


def _is_new(change: Transition, request: RequestView) -> bool:
    """Does a request wait, without a record and without a load?"""
    has_record = request.id in change.before.record_by_request
    return request.place == Place.WAITING and not (has_record or request.session or request.awaits)


def _kept_columns(change: Transition, namespace: int, tokens: Sequence[int]) -> Columns:
    """Per component the units of the cached pages of some tokens, 0 for one that was not cached all the step."""
    was, now = (columns_of(state, namespace, tokens) for state in (change.before, change.after))
    return [
        [unit if later[place : place + 1] == [unit] else 0 for place, unit in enumerate(earlier)]
        for earlier, later in zip(was, now, strict=True)
    ]
