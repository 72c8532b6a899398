"""The KV that a request has computed stays in the cache when the request ends.

On a server: The next request with the same prefix computes it again.
"""

from collections.abc import Iterator, Set
from math import lcm
from typing import NamedTuple

from swarden.invariants.events import TREE_KIND, Finished, FinishReason, Freed, Preempted, RanOut, Retracted, Taken
from swarden.invariants.invariant import invariant
from swarden.invariants.prefixes import cached_pages, columns_of
from swarden.invariants.reference import Expectation
from swarden.invariants.transition import Transition, When
from swarden.invariants.view import FREE, RecordView
from swarden.invariants.violation import Code, Evidence, found, request_ref, unit_ref

BY_ITSELF = (FinishReason.STOP, FinishReason.LENGTH)


class CompletenessCode(Code):
    NOT_KEPT = "free after request {request} has ended, which computed all of its tokens [{start}, {end})"
    NOT_CACHED = "has ended, but no node has the page of its computed tokens [{start}, {end})"


class Ended(NamedTuple):
    """A request that ended by itself: its tokens, and the record that it had before the step (None: none)."""

    id: int
    expected: Expectation
    record: RecordView | None


def shares_prefixes(change: Transition) -> bool:
    """Do requests share prefixes?"""
    return change.after.limits.shares_prefixes


def ended_by_themselves(change: Transition) -> Iterator[Ended]:
    """The requests that ended with all of their tokens.

    Left out are turns, whose sessions keep their KV, requests that ask not to be cached, and requests that released
    everything to wait again in the step.
    """
    put_back = {event.request_id for event in change.in_order(Retracted, RanOut, Preempted)}  # type: ignore[attr-defined]  # all have one
    for event in change.events_of(Finished):
        request = change.before.request_by_id.get(event.request_id)
        expected = change.reference.expectations.get(event.request_id)
        is_whole = request is not None and not request.session and request.id not in put_back
        if event.reason in BY_ITSELF and expected and not expected.is_uncached and is_whole:
            yield Ended(event.request_id, expected, change.before.record_by_request.get(event.request_id))


@invariant(When.STEP, needs=("requests", "records", "Freed"), on=(Finished,), given=shares_prefixes)
def ended_requests_leave_their_kv_cached(change: Transition) -> Evidence:
    """A request that ends by itself frees no whole page that it has computed, unless the cache has these tokens.

    Its last token is not computed; accepted drafts are computed (vllm pull 54979).  Windows and states are not checked,
    because an engine may keep fewer of their pages.  Pages are checked up to the first that the cache lost in the step;
    a page that the cache replaced is not lost.  Whether pages that were taken in the step are cached is known only in
    an engine with a tree.
    """
    taken = {(event.pool, unit) for event in change.events_of(Taken) for unit in event.units}
    evicted = {(one.pool, unit) for one in change.events_of(Freed) if one.owner.kind == TREE_KIND for unit in one.units}
    for ended in ended_by_themselves(change):
        for index, page in _lost_pages(change, ended, evicted):
            component, held = change.after.components[index], ended.record.units[index] if ended.record else ()
            span = {"start": page * component.page_size, "end": (page + 1) * component.page_size}
            if page >= len(held):
                yield found(request_ref(ended.id), CompletenessCode.NOT_CACHED, **span)
            elif (component.pool, held[page]) not in taken:
                subject = unit_ref(change.after.pool(component.pool), held[page])
                yield found(subject, CompletenessCode.NOT_KEPT, request=ended.id, **span)


def _lost_pages(change: Transition, ended: Ended, evicted: Set[tuple[str, int]]) -> Iterator[tuple[int, int]]:
    """The component and the index of each whole computed page that is not cached and has no owner."""
    after, shared = change.after, change.after.limits.page_size
    tokens, namespace = ended.expected.tokens, ended.expected.namespace
    whole = lcm(shared, *[part.page_size for part in after.components if not part.has_states])  # of all components
    num_computed = (len(tokens) - 1) // whole * whole
    num_cached = shared * sum(1 for _ in cached_pages(after, namespace, tokens))
    columns = columns_of(change.before, namespace, tokens)
    for index, component in enumerate(after.components):
        if component.window is None:
            pool, owner_of = component.pool, after.pool(component.pool).owner_of
            held = ended.record.units[index] if ended.record else ()
            for page in range(num_cached // component.page_size, num_computed // component.page_size):
                units = (*held[page : page + 1], *columns[index][page : page + 1])
                if any((pool, unit) in evicted for unit in units):
                    break
                is_lost = owner_of.get(held[page]) == FREE if page < len(held) else after.nodes is not None
                if is_lost:
                    yield index, page
